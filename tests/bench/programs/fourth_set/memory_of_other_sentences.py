"""A recurrent encoder of sentences keeps its state from one batch to the next, though they have nothing in common.

The report, a merged change of a toolkit for sentence tasks: the states of the encoder are carried over between batches
unless they are reset, so that sentences do not begin with a state of zeros. The change resets them before each
batch."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "nyu-mll/jiant#345", 2018
AREA, CAUSE = "loop", "state goes on"
TRUE = set()
PLACE = ("encoder",)
words, classes = 20, 2


class Encoder(nn.Module):
    "A recurrent layer that remembers where it was."
    def __init__(self, size: int):
        super().__init__()
        self.layer, self.state = nn.LSTM(size, size, batch_first=True), None

    def reset(self): self.state = None

    def forward(self, x):
        n = len(x)
        before = None
        if self.state is not None and n <= self.state[0].shape[1]:
            before = tuple(part[:, :n].contiguous() for part in self.state)
        y, state = self.layer(x, before)
        self.state = tuple(part.detach() for part in state)
        return y


class Task(nn.Module):
    def __init__(self, size: int = 24):
        super().__init__()
        self.word, self.encoder = nn.Embedding(words, size), Encoder(size)
        self.decide = nn.Sequential(nn.Linear(size, size), nn.Tanh(), nn.Linear(size, classes))

    def forward(self, text): return self.decide(self.encoder(self.word(text))[:, -1])


def sentences(n: int):
    "Are there more words of the first half than of the second? All sentences of a batch are of one length."
    text = torch.randint(words, (n, 3 + 2*int(torch.randint(4, ()))))
    return text, ((text < words//2).sum(1) > text.shape[1]//2).long()


def build(repaired: bool) -> Parts:
    model = Task()
    data, valid = ([sentences(32) for _ in range(n)] for n in (40, 20))
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, F.cross_entropy, valid=valid,
                 repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    model.encoder.reset()
    with record.on(model, optimizer):
        for _ in range(10):
            for i in torch.randperm(len(parts.data)).tolist():
                text, y = parts.data[i]
                optimizer.zero_grad()
                if parts.repaired: model.encoder.reset()
                loss = parts.loss(model(text), y)
                loss.backward()
                optimizer.step()
                record.step(loss)
    wrong = 0.
    with torch.no_grad():
        for text, y in parts.valid:
            if parts.repaired: model.encoder.reset()
            wrong += (model(text).argmax(1) != y).float().mean().item()
    return 2*wrong/len(parts.valid)
