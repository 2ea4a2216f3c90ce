"""The pictures of the training set are normalized, those of the test set are not.

The report: training goes well, but the accuracy in the test is very low. The author found that the normalization was
used in training only, and gave both sets the same transformation."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "JeasunLok/ResNet-pytorch#1", 2023
AREA, CAUSE = "data and labels", "validation differs from training"
TRUE = set()
PLACE = ()

patterns = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
                                   nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16))

    def forward(self, x): return (x + self.inner(x)).relu()


def pictures(n: int):
    "Pictures of six classes with numbers from 0 to 1."
    y = torch.randint(6, (n,))
    return (.55 + .35*(patterns[y] - .5) + .15*torch.randn(n, 3, 8, 8)).clamp(0, 1), y


def normalized(x): return (x - .55)/.18


def build(repaired: bool) -> Parts:
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), Block(),
                          nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 6))
    data = [(normalized(x), y) for x, y in (pictures(32) for _ in range(25))]
    valid = [(normalized(x) if repaired else x, y) for x, y in (pictures(256) for _ in range(4))]
    return Parts(model, torch.optim.SGD(model.parameters(), lr=.05, momentum=.9), data, F.cross_entropy, valid=valid)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            for x, y in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), y)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    with torch.no_grad(): wrong = torch.cat([parts.model(x).argmax(1) != y for x, y in parts.valid])
    return wrong.float().mean().item()/(5/6)
