"""The last layer of a classifier of pictures is followed by a ReLU, so no class can get a score below zero.

The report, on the first model of a tutorial: the outputs are used as scores in a cross-entropy, and a ReLU does not
belong there. A merged change took it away. Scores that the ReLU cuts off get no gradient: a class that is below zero
for all pictures is never learned."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pytorch/tutorials#1526", 2021
AREA, CAUSE = "structure", "activation at the wrong place"
TRUE = {"dead units"}
PLACE = ("stack.5",)

classes, side = 10, 10


class Network(nn.Module):
    def __init__(self, repaired: bool):
        super().__init__()
        self.flatten = nn.Flatten()
        self.stack = nn.Sequential(nn.Linear(side*side, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(),
                                   nn.Linear(128, classes), *([] if repaired else [nn.ReLU()]))

    def forward(self, x): return self.stack(self.flatten(x))


def clothes(n: int, looks):
    "Grey pictures from 0 to 1: each class has a shape, worn lighter or darker."
    y = torch.randint(0, classes, (n,))
    x = looks[y]*(.6 + .4*torch.rand(n, 1, 1)) + .25*torch.randn(n, side, side)
    return x.clamp(0, 1)[:, None], y


def epoch(parts: Parts, record):
    for x, y in parts.data:
        loss = parts.loss(parts.model(x), y)
        parts.optimizer.zero_grad()
        loss.backward()
        parts.optimizer.step()
        record.step(loss)


def wrong(model, batches) -> float:
    with torch.no_grad(): return torch.cat([model(x).argmax(1) != y for x, y in batches]).float().mean().item()


def build(repaired: bool) -> Parts:
    looks = F.interpolate(torch.rand(classes, 1, 4, 4), side, mode="bilinear")[:, 0]
    model = Network(repaired)
    data = [clothes(64, looks) for _ in range(80)]
    return Parts(model, torch.optim.SGD(model.parameters(), lr=.02), data, F.cross_entropy,
                 valid=[clothes(1000, looks)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(10): epoch(parts, record)
    return wrong(parts.model, parts.valid)
