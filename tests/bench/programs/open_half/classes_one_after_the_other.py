"""The loader does not shuffle, so the network sees one class after the other.

The report: without `shuffle=True` among its options the loader brings pictures of a single class for a long time, which
throws the network out of its minimum. The author found that passing it solves the issue."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "Deci-AI/super-gradients#416", 2022
AREA, CAUSE = "data and labels", "data not shuffled"
TRUE = {"loss does not fall", "spike"}
PLACE = ()

patterns = torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def pictures(n: int):
    "Pictures of eight classes, in the order of their folders."
    y = torch.arange(n)*8//n
    return patterns[y] + 1.5*torch.randn(n, 1, 8, 8), y


def build(repaired: bool) -> Parts:
    model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
                          nn.ReLU(), nn.Flatten(), nn.Linear(512, 8))
    options = {"batch_size": 32, "shuffle": True} if repaired else {"batch_size": 32}
    optimizer = torch.optim.SGD(model.parameters(), lr=.005, momentum=.9, nesterov=True, weight_decay=1e-4)
    return Parts(model, optimizer, DataLoader(TensorDataset(*pictures(2048)), **options), F.cross_entropy,
                 valid=[pictures(1024)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            for x, y in parts.data:
                loss = parts.loss(parts.model(x), y)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, y = parts.valid[0]
    with torch.no_grad(): return (parts.model(x).argmax(1) != y).float().mean().item()/(7/8)
