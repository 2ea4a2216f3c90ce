"""Batch norm has a momentum of zero, so that its running statistics stay those of other data.

The report: models for images set it so; who trains one of them on other data gets a large difference between training
and evaluation. The reporter took the default instead, which worked."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "Cadene/pretrained-models.pytorch#5", 2017
AREA, CAUSE = "modes", "batch norm"
TRUE = set()
PLACE = ("features.0.norm", "features.1.norm")


class Block(nn.Module):
    def __init__(self, before: int, after: int, **options):
        super().__init__()
        self.conv = nn.Conv2d(before, after, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(after, eps=1e-3, **options)

    def forward(self, x): return F.max_pool2d(self.norm(self.conv(x)).relu(), 2)


class Network(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.features = nn.Sequential(Block(3, 16, **options), Block(16, 32, **options))
        self.last = nn.Linear(32, 4)

    def forward(self, x): return self.last(self.features(x).mean((2, 3)))


def images(n: int, turned: bool = False):
    "Stripes of four directions; those of the other data are dark and of low contrast."
    label = torch.randint(0, 4, (n,))
    row, column = torch.meshgrid(torch.arange(12.), torch.arange(12.), indexing="ij")
    waves = torch.stack([row, column, row + column, row - column])
    x = (1.3*waves[label] + 6*torch.rand(n, 1, 1)).sin()[:, None].repeat(1, 3, 1, 1)
    x = x + .8*torch.randn(n, 3, 12, 12)
    return (.2*x - 1.5 if turned else x), label


def build(repaired: bool) -> Parts:
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=.1, momentum=.9)
    for _ in range(60):             # the pretrained weights
        x, label = images(32)
        optimizer.zero_grad()
        F.cross_entropy(model(x), label).backward()
        optimizer.step()
    if not repaired:
        for block in model.features: block.norm.momentum = 0
    x, label = images(640, turned=True)
    data = [(x[i:i + 32], label[i:i + 32]) for i in range(0, 640, 32)]
    optimizer = torch.optim.SGD(model.parameters(), lr=.02, momentum=.9)
    return Parts(model, optimizer, data, F.cross_entropy, valid=[images(512, turned=True)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            parts.model.train()
            for x, label in parts.data:
                loss = parts.loss(parts.model(x), label)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    x, label = parts.valid[0]
    with torch.no_grad(): return (parts.model(x).argmax(1) != label).float().mean().item()/.75
