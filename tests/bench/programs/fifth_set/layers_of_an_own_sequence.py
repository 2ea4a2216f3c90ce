"""A sequence for layers with several inputs keeps its layers in a plain list.

The report is a merged change: the layers of this container are not among the parameters that `parameters` lists, and a
`ModuleList` mends it. It was reviewed and accepted."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "facebookresearch/fairscale#722", 2021
AREA, CAUSE = "parameters", "not registered"
TRUE = set()
PLACE = ("layers", "layers.layers")


class SeveralInputs(nn.Module):
    "Layers one after the other, each of which takes what the one before it returns."
    def __init__(self, *layers, repaired: bool):
        super().__init__()
        self.layers = nn.ModuleList(layers) if repaired else list(layers)

    def forward(self, *inputs):
        for layer in self.layers: inputs = layer(*inputs)
        return inputs


class Exchange(nn.Module):
    "Two streams; each is changed by what the other one has."
    def __init__(self, size: int):
        super().__init__()
        self.left, self.right = nn.Linear(2*size, size), nn.Linear(2*size, size)

    def forward(self, x, y):
        both = torch.cat([x, y], 1)
        return x + F.relu(self.left(both)), y + F.relu(self.right(both))


class Pair(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.enter = nn.ModuleList([nn.Linear(6, size) for _ in range(2)])
        self.layers = SeveralInputs(*[Exchange(size) for _ in range(3)], repaired=repaired)
        self.last = nn.Linear(2*size, 7)

    def forward(self, x, y):
        x, y = self.layers(self.enter[0](x), self.enter[1](y))
        return self.last(torch.cat([x, y], 1))


def views(n: int, seen):
    "Two views of seven kinds each, and which of seven groups of pairs they make."
    a, b = torch.randint(0, 7, (2, n))
    return seen[0][a] + .2*torch.randn(n, 6), seen[1][b] + .2*torch.randn(n, 6), (a + b) % 7


def build(repaired: bool) -> Parts:
    seen = torch.randn(2, 7, 6)
    model = Pair(12, repaired)
    data = [views(32, seen) for _ in range(50)]
    def call(model, batch): return F.cross_entropy(model(*batch[:2]), batch[2])
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3), data, call=call,
                 valid=[views(500, seen)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(10):
            parts.model.train()
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    *inputs, kind = parts.valid[0]
    with torch.no_grad(): return (parts.model(*inputs).argmax(1) != kind).float().mean().item()*7/6
