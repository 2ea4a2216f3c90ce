"""A batch that batch norm sees holds overlapping windows of one series only, one forward pass for each series.

The report: a model with batch norm has a large error in eval mode. One author cuts each series into windows, runs those
of one series at a time, adds the losses and calls backward once. A maintainer answered that this is the problem: batch
norm does not add up, and all windows have to go through the network at once."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pytorch/pytorch#4741", 2018
AREA, CAUSE = "modes", "batch norm"
TRUE = set()
PLACE = ("layers.1", "layers.4")


class Reader(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(1, size, 5), nn.BatchNorm1d(size), nn.ReLU(),
                                    nn.Conv1d(size, size, 5), nn.BatchNorm1d(size), nn.ReLU())
        self.last = nn.Linear(size, 1)

    def forward(self, x): return self.last(self.layers(x).mean(2))


def series(n: int):
    "Series of 40 numbers, each with its own level and pitch; the target of a window is its level and its last number."
    time = torch.arange(40.)
    level, pitch = torch.randn(n, 1), torch.empty(n, 1).uniform_(.2, .6)
    x = level + (pitch*time + 6*torch.rand(n, 1)).sin() + .2*torch.randn(n, 40)
    windows = x.unfold(1, 16, 2)
    return windows[:, :, None], (level[:, :, None] + .5*windows[:, :, -4:].mean(2, keepdim=True))


def build(repaired: bool) -> Parts:
    model = Reader(16)
    x, y = series(240)
    data = [(x[i:i + 8], y[i:i + 8]) for i in range(0, 240, 8)]

    def call(model, batch):
        x, y = batch
        if repaired: return F.mse_loss(model(x.flatten(0, 1)), y.flatten(0, 1))
        return sum(F.mse_loss(model(windows), target) for windows, target in zip(x, y))/len(x)

    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, call=call, valid=[series(200)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(7):
            parts.model.train()
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    x, y = (part.flatten(0, 1) for part in parts.valid[0])
    with torch.no_grad(): return (F.mse_loss(parts.model(x), y)/y.var()).item()
