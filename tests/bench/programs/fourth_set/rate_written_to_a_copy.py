"""The rate that a function computes for each epoch is written to the state dict of the optimizer, which is a copy.

The report: in the example that trains networks on images the rate did not change until the loop over the groups of the
state dict became one over the groups of the optimizer. A maintainer agreed that a change had broken it, and mended
it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pytorch/examples#64", 2017
AREA, CAUSE = "optimizer and schedule", "schedule never moves"
TRUE = {"learning rate too large"}
PLACE = ()
rate, classes = .1, 8
looks = torch.randn(classes, 1, 4, 4, generator=torch.Generator().manual_seed(5))


class Block(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.first_norm, self.second_norm = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x):
        return (x + self.second_norm(self.second(self.first_norm(self.first(x)).relu()))).relu()


def network():
    return nn.Sequential(nn.Conv2d(1, 12, 3, 2, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU(), Block(12),
                         nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(48, classes))


def images(n: int, wrong: float = 0.):
    "A coarse pattern for each class, in strong noise; some labels may be wrong."
    y = torch.randint(classes, (n,))
    x = F.interpolate(looks, scale_factor=3.)[y] + 1.6*torch.randn(n, 1, 12, 12)
    return x, torch.where(torch.rand(n) < wrong, torch.randint(classes, (n,)), y)


def adjust(optimizer, epoch: int, repaired: bool):
    "A tenth of the rate after each third of the epochs."
    groups = optimizer.param_groups if repaired else optimizer.state_dict()["param_groups"]
    for group in groups: group["lr"] = rate*.1**(epoch // 3)


def build(repaired: bool) -> Parts:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=.9, weight_decay=1e-4)
    x, y = images(512, .15)
    data = list(zip(x.split(16), y.split(16)))
    return Parts(model, optimizer, data, F.cross_entropy, valid=[images(512)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for epoch in range(9):
            adjust(optimizer, epoch, parts.repaired)
            model.train()
            for i in torch.randperm(len(parts.data)).tolist():
                x, y = parts.data[i]
                loss = parts.loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
    model.eval()
    x, y = parts.valid[0]
    with torch.no_grad(): return (model(x).argmax(1) != y).float().mean().item()*classes/(classes - 1)
