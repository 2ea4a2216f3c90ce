"""Layers are replaced by smaller ones after the optimizer was made, which goes on with the old ones.

The report: after pruning, the parameters do not change in fine-tuning. A maintainer explained that the step that makes
the network faster replaces layers, so the optimizer holds parameters of layers that are gone; the reporter made a new
optimizer, and that solved it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "microsoft/nni#4521", 2022
AREA, CAUSE = "parameters", "other parameters in the optimizer"
TRUE = {"not in the optimizer", "not trained"}
PLACE = ("first", "second", "last")

side, classes = 12, 5


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 16, 3, 2, 1), nn.Conv2d(16, 32, 3, 2, 1)
        self.last = nn.Linear(32*9, classes)

    def forward(self, x): return self.last(self.second(self.first(x).relu()).relu().flatten(1))


def strongest(conv, share: float):
    "Which filters of a layer have the largest norm."
    norms = conv.weight.detach().flatten(1).norm(dim=1)
    return norms.topk(int(len(norms)*share)).indices.sort().values


def smaller(old, rows, columns):
    "A layer with some of the outputs and inputs of another one, and its numbers there."
    kind = {"kernel_size": 3, "stride": 2, "padding": 1} if isinstance(old, nn.Conv2d) else {}
    new = type(old)(len(columns), len(rows), **kind)
    new.weight.data, new.bias.data = old.weight.data[rows][:, columns].clone(), old.bias.data[rows].clone()
    return new


def speed_up(model, share: float):
    first, second = strongest(model.first, share), strongest(model.second, share)
    model.first = smaller(model.first, first, torch.arange(1))
    model.second = smaller(model.second, second, first)
    cells = (second[:, None]*9 + torch.arange(9)).flatten()
    model.last = smaller(model.last, torch.arange(classes), cells)


def pictures(n: int, looks):
    y = torch.randint(0, classes, (n,))
    return looks[y] + .8*torch.randn(n, 1, side, side), y


def epoch(model, optimizer, batches, heard):
    for x, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        heard(loss)


def build(repaired: bool) -> Parts:
    looks = .35*torch.randn(classes, 1, side, side)
    data = [pictures(64, looks) for _ in range(60)]
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=.02, momentum=.9, weight_decay=5e-4)
    epoch(model, optimizer, data, lambda _: None)
    speed_up(model, .25)
    if repaired: optimizer = torch.optim.SGD(model.parameters(), lr=.02, momentum=.9, weight_decay=5e-4)
    return Parts(model, optimizer, data, F.cross_entropy, valid=[pictures(1000, looks)])


def train(parts: Parts, record) -> float:
    parts.model.train()
    with record.on(parts.model, parts.optimizer):
        for _ in range(3): epoch(parts.model, parts.optimizer, parts.data, record.step)
    parts.model.eval()
    x, y = parts.valid[0]
    with torch.no_grad(): return (parts.model(x).argmax(1) != y).float().mean().item()
