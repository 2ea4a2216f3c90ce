"""The schedule waits for a higher value and is given the loss, so it cuts the rate while the loss is falling.

The report: a library for models of DNA makes ReduceLROnPlateau with "max" and steps it with the loss. One of its
developers opened it as a bug: the schedule used to follow another measure, and the mode was not changed with it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "FunctionLab/selene#115", 2019
AREA, CAUSE = "optimizer and schedule", "schedule does not fit"
TRUE = {"learning rate too small"}
PLACE = ()


class Motifs(nn.Module):
    "Convolutions over letters, and for each of three marks whether it is there."
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(4, 32, 6), nn.Linear(32, 32)
        self.last = nn.Linear(32, 3)

    def forward(self, x): return self.last(self.second(self.first(x).relu().amax(2)).relu())


def sequences(n: int, motifs):
    "Letters at random; half of them hold a motif of six letters, for each of three."
    letters, there = torch.randint(0, 4, (n, 36)), torch.rand(n, 3) < .5
    for k in range(3):
        at = torch.randint(12*k, 12*k + 7, (n, 1)) + torch.arange(6)
        letters = torch.where(there[:, k:k + 1], letters.scatter(1, at, motifs[k].expand(n, 6)), letters)
    return F.one_hot(letters, 4).float().transpose(1, 2), there.float()


def build(repaired: bool) -> Parts:
    model, motifs = Motifs(), torch.randint(0, 4, (3, 6))
    x, y = sequences(2048, motifs)
    data = list(zip(x.split(64), y.split(64)))
    optimizer = torch.optim.SGD(model.parameters(), lr=.2, momentum=.9)
    loss = F.binary_cross_entropy_with_logits
    return Parts(model, optimizer, data, loss, valid=[sequences(1024, motifs)], repaired=repaired)


def held_out(parts: Parts) -> float:
    x, y = parts.valid[0]
    with torch.no_grad(): return parts.loss(parts.model(x), y).item()


def train(parts: Parts, record) -> float:
    mode = "min" if parts.repaired else "max"
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(parts.optimizer, mode=mode, patience=2, factor=.5)
    with record.on(parts.model, parts.optimizer):
        for _ in range(18):
            for i, (x, y) in enumerate(parts.data, 1):
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), y)
                loss.backward()
                parts.optimizer.step()
                if i % 8 == 0: schedule.step(held_out(parts))
                record.step(loss)
    return held_out(parts)/.693
