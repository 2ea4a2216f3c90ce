"""A dropout layer is made anew in each call of the model, so it is always in training mode, at test as well.

The report: a network for fine-grained classes makes the dropout before its last layer in `forward`, and `eval()` does
not reach it. Two users confirm: one proposes a layer of the model or the mode as an argument, the other found that the
same image got other answers at test."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "yangze0930/NTS-Net#14", 2019
AREA, CAUSE = "modes", "random in eval"
TRUE = set()
PLACE = ()


class Block(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.one, self.two = nn.Conv2d(size, size, 3, padding=1), nn.Conv2d(size, size, 3, padding=1)
        self.norm_one, self.norm_two = nn.BatchNorm2d(size), nn.BatchNorm2d(size)

    def forward(self, x): return (x + self.norm_two(self.two(self.norm_one(self.one(x)).relu()))).relu()


class Net(nn.Module):
    "A small residual network."
    def __init__(self, classes: int, repaired: bool):
        super().__init__()
        self.first, self.blocks = nn.Conv2d(3, 12, 3, padding=1), nn.Sequential(Block(12), nn.MaxPool2d(2), Block(12))
        self.last = nn.Linear(12, classes)
        if repaired: self.drop = nn.Dropout(.5)
        self.repaired = repaired

    def forward(self, x):
        x = self.blocks(self.first(x).relu()).mean((2, 3))
        x = self.drop(x) if self.repaired else nn.Dropout(.5)(x)
        return self.last(x)


def birds(n: int):
    "Images of one shape that differ in the colour and place of a small mark."
    y = torch.randint(0, 6, (n,))
    x = .3*torch.randn(n, 3, 10, 10)
    x[:, :, 2:8, 2:8] += .6
    rows = 3 + 3*(y // 3)
    for i in range(n): x[i, y[i] % 3, rows[i]:rows[i] + 2, 4:6] += 1.2
    return x, y


def build(repaired: bool) -> Parts:
    model = Net(6, repaired)
    x, y = birds(640)
    optimizer = torch.optim.SGD(model.parameters(), lr=.02, momentum=.9, weight_decay=1e-4)
    data = list(zip(x.split(32), y.split(32)))
    return Parts(model, optimizer, data, F.cross_entropy, valid=[birds(512)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(12):
            model.train()
            for x, y in parts.data:
                optimizer.zero_grad()
                loss = parts.loss(model(x), y)
                loss.backward()
                optimizer.step()
                record.step(loss)
    model.eval()
    x, y = parts.valid[0]
    with torch.no_grad(): return (model(x).argmax(1) != y).float().mean().item()/(5/6)
