"""The scaler of a time series is fitted to each split of the data, so that the same level is another number in each.

The report: a transformer for long series computes mean and deviation of training, validation and test data apart. The
maintainers agreed that those of the training data have to be used for all, and changed it."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "zhouhaoyi/Informer2020#41", 2021
AREA, CAUSE = "data and labels", "validation differs from training"
TRUE = set()
PLACE = ()
PAST, AHEAD = 16, 4


class Forecaster(nn.Module):
    "Attention over the past, and all moments of the future at once."
    def __init__(self, size: int):
        super().__init__()
        self.value, self.place = nn.Linear(1, size), nn.Parameter(.1*torch.randn(PAST, size))
        self.layer = nn.TransformerEncoderLayer(size, 4, 2*size, .05, batch_first=True)
        self.last = nn.Linear(PAST*size, AHEAD)

    def forward(self, past): return self.last(self.layer(self.value(past) + self.place).flatten(1))


def load(levels):
    "The load of a net: it swings around its level, and the higher the level, the faster."
    phase = torch.cumsum(.25 + .5*levels/10, 0)
    return levels + 2*phase.sin() + .1*torch.randn(len(levels))


def levels(n: int, low: float, high: float):
    "Levels that wander slowly to and fro."
    return low + (high - low)*(.5 + .5*torch.sin(torch.arange(n)*2*math.pi/150 + 6*torch.rand(())))


def windows(series):
    cut = series.unfold(0, PAST + AHEAD, 1)
    return cut[:, :PAST, None], cut[:, PAST:]


def build(repaired: bool) -> Parts:
    known, later = load(levels(1500, 0., 10.)), load(levels(400, 7., 10.))
    mean, deviation = known.mean(), known.std()
    of_later = (mean, deviation) if repaired else (later.mean(), later.std())
    past, future = windows((known - mean)/deviation)
    order = torch.randperm(len(past))
    data = list(zip(past[order].split(64), future[order].split(64)))
    model = Forecaster(16)
    parts = Parts(model, torch.optim.Adam(model.parameters(), lr=4e-3), data, F.mse_loss,
                  valid=[windows((later - of_later[0])/of_later[1])])
    parts.deviation = of_later[1]
    return parts


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(5):
            parts.model.train()
            for past, future in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(past), future)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    past, future = parts.valid[0]
    with torch.no_grad(): error = parts.model(past) - future
    return (error*parts.deviation).square().mean().item()/2  # the variance of the swing
