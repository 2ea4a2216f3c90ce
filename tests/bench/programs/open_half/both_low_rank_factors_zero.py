"""Both factors of the low-rank adapters start at zero, so that neither ever gets a gradient.

The report: while a model is trained with adapters, all their gradients are zero, and both factors are zero. Random
numbers for the first factor solved it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "circle-hit/SAPT#11", 2024
AREA, CAUSE = "initialisation", "units alike"
TRUE = {"loss does not fall", "cannot learn by heart", "not trained", "gradients vanish"}
PLACE = ("layers.0.down", "layers.0.up", "layers.2.down", "layers.2.up")


class Adapted(nn.Module):
    "A frozen layer, and beside it a product of two narrow matrices."
    def __init__(self, layer: nn.Linear, rank: int, repaired: bool):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        start = torch.randn(layer.in_features, rank)/rank**.5 if repaired else torch.zeros(layer.in_features, rank)
        self.down, self.up = nn.Parameter(start), nn.Parameter(torch.zeros(rank, layer.out_features))

    def forward(self, x): return self.layer(x) + x @ self.down @ self.up


class Network(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, size), nn.ReLU(), nn.Linear(size, size), nn.ReLU())
        self.last = nn.Linear(size, 1)

    def forward(self, x): return self.last(self.layers(x))


def samples(n: int, new: bool):
    "The new task is the old one with other signs."
    x = torch.randn(n, 10)
    y = (x[:, :1] + x[:, 1:2]).tanh() + x[:, 2:3]*(-1 if new else 1)*.5 + (x[:, 3:4].abs() - .8)*(-1 if new else 1)
    return x, y + .1*torch.randn(n, 1)


def build(repaired: bool) -> Parts:
    model = Network(48)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(200):            # the weights that were trained before
        x, y = samples(64, new=False)
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    model.last.requires_grad_(False)
    for i in 0, 2: model.layers[i] = Adapted(model.layers[i], 8, repaired)
    x, y = samples(1024, new=True)
    data = [(x[i:i + 64], y[i:i + 64]) for i in range(0, 1024, 64)]
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    return Parts(model, optimizer, data, F.mse_loss, valid=[samples(512, new=True)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(25):
            for x, y in parts.data:
                loss = parts.loss(parts.model(x), y)
                loss.backward()
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    x, y = parts.valid[0]
    with torch.no_grad(): return (parts.loss(parts.model(x), y)/y.var()).item()
