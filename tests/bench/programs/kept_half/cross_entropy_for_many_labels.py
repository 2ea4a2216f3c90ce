"""A protein can have several labels at once, but they are trained with one softmax over all of them.

The report: a change replaces the cross-entropy by one for each label. The maintainer asked whether it was meant,
since he had thought of a softmax, and merged it when he saw that the labels do not exclude each other."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "hypnopump/rgn2-replica#12", 2021
AREA, CAUSE = "loss and task", "loss does not fit the targets"
TRUE = set()
PLACE = ()


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.conv = nn.Conv1d(16, 64, 3, padding=1)
        self.last = nn.Linear(64, 10)

    def forward(self, tokens): return self.last(self.conv(self.embed(tokens).movedim(2, 1)).relu().amax(2))


def proteins(n: int):
    "Sequences of twenty acids; each of the first ten is a label of the sequences in which it occurs."
    rare = torch.randint(10, 20, (n, 16))
    tokens = torch.where(torch.rand(n, 16) < torch.rand(n, 1), torch.randint(10, (n, 16)), rare)
    return tokens, F.one_hot(tokens, 20).amax(1)[:, :10].float()


def build(repaired: bool) -> Parts:
    model = Tagger()
    loss = nn.BCEWithLogitsLoss() if repaired else nn.CrossEntropyLoss()
    data = [proteins(64) for _ in range(40)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, loss, valid=[proteins(1024)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            for tokens, labels in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(tokens), labels)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    tokens, labels = parts.valid[0]
    with torch.no_grad(): named = parts.model(tokens).sigmoid() > .5
    return ((named != labels.bool()).float().mean()/labels.mean()).item()
