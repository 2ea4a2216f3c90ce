"""Gradients are gathered across epochs, and each epoch begins by clearing those that still wait for their step.

The report: in a trainer of detectors the optimizer makes a step after a number of batches that does not divide the
number in an epoch, and zero_grad is called after each step and also at the start of an epoch. What the last batches of
an epoch gave is thrown away. The change that takes the second call out was merged."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "ultralytics/ultralytics#11217", 2024
AREA, CAUSE = "loop", "no step"
TRUE = {"learning rate too small"}
PLACE = ()
size, meant = 8, 64
GATHER = meant//size


class Detector(nn.Module):
    "For each of nine cells whether the middle of a thing is in it, and where its four sides are."
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.SiLU(),
                                    nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.SiLU(), nn.Conv2d(32, 5, 1))

    def forward(self, x): return self.layers(x)


def images(n: int):
    "A rectangle on a noisy ground; its cell, and its sides from the middle of that cell."
    middle, half = 2 + 8*torch.rand(n, 2), 1 + 1.5*torch.rand(n, 2)
    place = torch.arange(12.)
    rows, columns = ((place - middle[:, i, None]).abs() < half[:, i, None] for i in (0, 1))
    x = (rows[:, :, None] & columns[:, None, :]).float()[:, None] + .3*torch.randn(n, 1, 12, 12)
    cell = (middle/4).long()
    off = middle/4 - cell - .5
    return x, torch.cat([cell.float(), off, half/4], 1)


def loss(output, target):
    cell = target[:, :2].long()
    there = output[torch.arange(len(output)), :, cell[:, 0], cell[:, 1]]
    here = torch.zeros_like(output[:, 0])
    here[torch.arange(len(output)), cell[:, 0], cell[:, 1]] = 1
    boxes = F.l1_loss(there[:, 1:], target[:, 2:])
    return len(output)*(F.binary_cross_entropy_with_logits(output[:, 0], here) + 2*boxes)


def build(repaired: bool) -> Parts:
    model = Detector()
    x, target = images(size*5)
    optimizer = torch.optim.SGD(model.parameters(), lr=5e-4, momentum=.937, nesterov=True)
    return Parts(model, optimizer, list(zip(x.split(size), target.split(size))), loss, valid=[images(256)],
                 repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer, batches, last = parts.model, parts.optimizer, len(parts.data), -1
    optimizer.zero_grad()
    with record.on(model, optimizer):
        for epoch in range(28):
            model.train()
            if not parts.repaired: optimizer.zero_grad()
            for i, (x, target) in enumerate(parts.data):
                loss = parts.loss(model(x), target)
                loss.backward()
                if i + batches*epoch - last >= GATHER:
                    optimizer.step()
                    optimizer.zero_grad()
                    last = i + batches*epoch
                    record.step(loss)
    model.eval()
    x, target = parts.valid[0]
    with torch.no_grad(): return parts.loss(model(x), target).item()/len(x)
