"""Decoupled weight decay takes a fixed amount from each parameter, where it should take a part of it.

The report: training with the SGDW of a library is worse than with plain SGD at the same settings. The author found the
line that subtracts rate times decay, without the parameter; a second report says the same of the same line."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "jettify/pytorch-optimizer#454", 2022
AREA, CAUSE = "optimizer and schedule", "weight decay too strong"
TRUE = {"dead units", "loss rises"}
PLACE = ()


class DecayedSGD(torch.optim.Optimizer):
    "Momentum, and a decay that is no part of the gradient."
    def __init__(self, params, lr: float, momentum: float, decay: float, repaired: bool):
        super().__init__(params, {"lr": lr, "momentum": momentum, "decay": decay})
        self.repaired = repaired

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None: continue
                moved = self.state[p].setdefault("moved", torch.zeros_like(p))
                moved.mul_(group["momentum"]).add_(p.grad)
                taken = group["lr"]*group["decay"]
                if self.repaired: p.mul_(1 - taken)
                p.sub_(group["lr"]*moved)
                if not self.repaired: p.sub_(taken)


class Block(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.first, self.second = nn.Conv2d(size, size, 3, padding=1, bias=False), nn.Conv2d(size, size, 3, padding=1)
        self.norm = nn.BatchNorm2d(size)

    def forward(self, x): return F.relu(x + self.second(F.relu(self.norm(self.first(x)))))


def images(n: int, kinds):
    label = torch.randint(0, 10, (n,))
    return kinds[label] + 1.5*torch.randn(n, 3, 8, 8), label


def build(repaired: bool) -> Parts:
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), Block(16), nn.MaxPool2d(2), Block(16),
                          nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 10))
    kinds = torch.randn(10, 3, 8, 8)
    image, label = images(1024, kinds)
    data = list(zip(image.split(32), label.split(32)))
    return Parts(model, DecayedSGD(model.parameters(), .02, .9, .05, repaired), data, F.cross_entropy,
                 valid=[images(512, kinds)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            parts.model.train()
            for image, label in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(image), label)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    image, label = parts.valid[0]
    with torch.no_grad(): return (parts.model(image).argmax(1) != label).float().mean().item()/.9
