"""Between the two last linear layers is no activation, so the scene and the state of the car can only be added.

The report: one layer would do the same as the two. A maintainer called it an error and asked for the missing ReLU."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "nutonomy/nuscenes-devkit#728", 2022
AREA, CAUSE = "structure", "no non-linearity"
TRUE = set()
PLACE = ("head",)

modes, steps = 2, 6


class Forecast(nn.Module):
    "A picture of the road and the speed of a car, made into several paths and the odds of each."
    def __init__(self, repaired: bool):
        super().__init__()
        self.road = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1),
                                  nn.ReLU(), nn.Flatten(), nn.Linear(256, 32), nn.ReLU())
        between = [nn.ReLU()] if repaired else []
        self.head = nn.Sequential(nn.Linear(32 + 2, 64), *between, nn.Linear(64, modes*(2*steps + 1)))

    def forward(self, picture, state):
        out = self.head(torch.cat([self.road(picture), state], 1))
        return out[:, :-modes].view(-1, modes, steps, 2), out[:, -modes:]


def best_path(output, path):
    "The error of the path that comes nearest, and a term that makes it the likely one."
    paths, odds = output
    error = (paths - path[:, None]).abs().mean((2, 3))
    nearest = error.argmin(1)
    return error.gather(1, nearest[:, None]).mean() + .2*F.cross_entropy(odds, nearest)


def drives(n: int):
    "The road bends; how far the car gets and how far it is carried sideways depends on the speed."
    bend, speed = torch.rand(n)*2 - 1, torch.rand(n)*2
    rows = torch.arange(8)/7.
    middle = 3.5 + 3*bend[:, None]*rows**2
    picture = (-(torch.arange(8.) - middle[..., None])**2).exp()[:, None]
    t = torch.arange(1, steps + 1)/steps
    ahead = speed[:, None]*t
    path = torch.stack([ahead, 2*bend[:, None]*ahead**2], -1)
    fork = torch.rand(n) < .3
    picture = torch.where(fork[:, None, None, None], torch.maximum(picture, picture.flip(3)), picture)
    return picture, torch.stack([speed, torch.randn(n)], 1), path


def build(repaired: bool) -> Parts:
    model = Forecast(repaired)
    data = [drives(64) for _ in range(30)]
    def call(model, batch): return best_path(model(*batch[:2]), batch[2])
    return Parts(model, torch.optim.SGD(model.parameters(), lr=.1, momentum=.9), data, call=call, valid=[drives(512)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(15):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    picture, state, path = parts.valid[0]
    with torch.no_grad(): paths, _ = parts.model(picture, state)
    error = (paths - path[:, None]).pow(2).mean((2, 3)).min(1).values.mean()
    return (error/(path - path.mean(0)).pow(2).mean()).item()
