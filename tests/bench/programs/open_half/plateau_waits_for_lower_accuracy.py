"""The schedule waits for a lower value and is given the accuracy, so it cuts the rate because the model gets better.

The report: ReduceLROnPlateau takes "min" for granted, but a model of video clips hands it the accuracy. The maintainer
answered that this was not intended and that the mode has to be "max"."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "md-mohaiminul/ViS4mer#4", 2022
AREA, CAUSE = "optimizer and schedule", "schedule does not fit"
TRUE = {"learning rate too small", "loss does not fall"}
PLACE = ()


class Clips(nn.Module):
    "Convolutions over time, and the strongest answer of each."
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(10, 32, 3, padding=1), nn.Conv1d(32, 32, 3, padding=1)
        self.last = nn.Linear(32, 6)

    def forward(self, x):
        x = self.second(self.first(x.transpose(1, 2)).relu()).relu()
        return self.last(x.amax(2))


def clips(n: int, scenes):
    "Twelve frames of noise with one of six short scenes at some time."
    x, y, at = torch.randn(n, 12, 10), torch.randint(0, 6, (n,)), torch.randint(0, 9, (n,))
    for i in range(4): x[torch.arange(n), at + i] += .7*scenes[y, i]
    return x, y


def build(repaired: bool) -> Parts:
    model, scenes = Clips(), torch.randn(6, 4, 10)
    x, y = clips(1024, scenes)
    data = [(x[i:i + 64], y[i:i + 64]) for i in range(0, 1024, 64)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    return Parts(model, optimizer, data, F.cross_entropy, valid=[clips(1024, scenes)], repaired=repaired)


def accuracy(model, batches) -> float:
    model.eval()
    with torch.no_grad(): right = [(model(x).argmax(1) == y).float().mean().item() for x, y in batches]
    model.train()
    return sum(right)/len(right)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, **({"mode": "max"} if parts.repaired else {}), patience=1, factor=.2)
    with record.on(model, optimizer):
        for _ in range(20):
            for x, y in parts.data:
                optimizer.zero_grad()
                loss = parts.loss(model(x), y)
                loss.backward()
                optimizer.step()
                record.step(loss)
            schedule.step(accuracy(model, parts.valid))
    return (1 - accuracy(model, parts.valid))/(5/6)
