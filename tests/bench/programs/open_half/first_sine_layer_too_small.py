"""The first layer of a network of sines gets the small weights of the later layers, so that it sees low pitches only.

The report: the network converges much slower and worse than the original. That one initialises its first layer in
another way; the maintainer had misunderstood this, changed it, and the author confirmed that it solves the problem."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "lucidrains/siren-pytorch#1", 2020
AREA, CAUSE = "initialisation", "weights too small"
TRUE = set()
PLACE = ("0", "0.linear")


class Sine(nn.Module):
    def __init__(self, before: int, after: int, width: float, pitch: float = 30.):
        super().__init__()
        self.linear, self.pitch = nn.Linear(before, after), pitch
        nn.init.uniform_(self.linear.weight, -width, width)
        nn.init.uniform_(self.linear.bias, -width, width)

    def forward(self, x): return (self.pitch*self.linear(x)).sin()


def picture(at):
    "Brightness at places between -1 and 1: stripes, rings and a slope."
    x, y = at.unbind(1)
    return ((24*x + 9*y).sin() + (36*(x.square() + y.square()).sqrt()).cos() + x)[:, None]/1.5


def build(repaired: bool) -> Parts:
    size = 48
    later = math.sqrt(6/size)/30
    first = 1/2 if repaired else math.sqrt(6/2)/30
    last = nn.Linear(size, 1)
    nn.init.uniform_(last.weight, -later, later)
    model = nn.Sequential(Sine(2, size, first), Sine(size, size, later), Sine(size, size, later), last)
    places = torch.rand(2400, 2)*2 - 1
    data = [(at, picture(at)) for at in places.split(400)]
    at = torch.rand(1000, 2)*2 - 1
    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-3), data, F.mse_loss, valid=[(at, picture(at))])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(40):
            for at, brightness in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(at), brightness)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    at, brightness = parts.valid[0]
    with torch.no_grad(): return (parts.loss(parts.model(at), brightness)/brightness.var()).item()
