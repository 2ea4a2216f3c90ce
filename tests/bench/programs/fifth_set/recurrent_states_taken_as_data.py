"""A recurrent layer takes its previous state as `.data`, so no gradient goes back further than one word.

The report: a classifier of film reviews is worse with the library's own LSTM than with that of torch. The reporter
found that the state is copied with `.data.clone()` before each step, took the `.data` away, and accuracy rose."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "allenai/allennlp#2530", 2019
AREA, CAUSE = "parameters", "detached part"
TRUE = set()
PLACE = ("encoder", "encoder.of_state")

words, length = 40, 14


class OwnLSTM(nn.Module):
    "An LSTM written out, step by step."
    def __init__(self, inputs: int, size: int, repaired: bool):
        super().__init__()
        self.of_input, self.of_state = nn.Linear(inputs, 4*size), nn.Linear(size, 4*size, bias=False)
        self.size, self.repaired = size, repaired

    def forward(self, x):
        state, memory = x.new_zeros(len(x), self.size), x.new_zeros(len(x), self.size)
        for step in x.unbind(1):
            before, kept = state.clone(), memory.clone()
            if not self.repaired: before, kept = before.data, kept.data
            enter, keep, new, out = (self.of_input(step) + self.of_state(before)).chunk(4, 1)
            memory = enter.sigmoid()*new.tanh() + keep.sigmoid()*kept
            state = out.sigmoid()*memory.tanh()
        return state


class Reviews(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.word = nn.Embedding(words, size)
        self.encoder = OwnLSTM(size, 24, repaired)
        self.last = nn.Linear(24, 2)

    def forward(self, x): return self.last(self.encoder(self.word(x)))


def reviews(n: int, praise):
    "Words, some of which praise and some of which blame; a review is good if it praises more."
    x = torch.randint(0, words, (n, length))
    return x, (praise[x].sum(1) > 0).long()


def build(repaired: bool) -> Parts:
    praise = torch.cat([torch.ones(12), -torch.ones(12), torch.zeros(words - 24)])[torch.randperm(words)]
    model = Reviews(16, repaired)
    data = [reviews(32, praise) for _ in range(60)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3), data, F.cross_entropy,
                 valid=[reviews(500, praise)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(5):
            parts.model.train()
            for x, y in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), y)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, y = parts.valid[0]
    parts.model.eval()
    with torch.no_grad(): return 2*(parts.model(x).argmax(1) != y).float().mean().item()
