"""A cosine that moves with each step gets the number of epochs as the length of its cycle, so it restarts all the time.

The report: to find ink in scans of scrolls, some schedules are called once a step, but get the number of epochs. One
with restarts, each with a peak of .9 of the last, makes hundreds of them within a few epochs, and the rate collapses.
The change that gives the number of steps was merged."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "ScrollPrize/villa#1495", 2026
AREA, CAUSE = "optimizer and schedule", "schedule does not fit"
TRUE = {"learning rate too small", "loss does not fall"}
PLACE = ()
EPOCHS, RATE = 4, .02


class Ink(nn.Module):
    "Two levels of convolutions over a small volume, with a way across."
    def __init__(self, size: int = 8):
        super().__init__()
        def layer(before, after):
            return nn.Sequential(nn.Conv3d(before, after, 3, padding=1), nn.InstanceNorm3d(after, affine=True),
                                 nn.LeakyReLU())
        self.down, self.deep = layer(1, size), layer(size, 2*size)
        self.out = nn.Conv3d(3*size, 1, 1)

    def forward(self, x):
        x = self.down(x)
        deep = F.interpolate(self.deep(F.max_pool3d(x, 2)), scale_factor=2)
        return self.out(torch.cat([x, deep], 1))


def volumes(n: int):
    "A noisy sheet of papyrus, and a stroke of ink that makes it a little brighter."
    ink = torch.zeros(n, 1, 4, 8, 8)
    row, height = torch.randint(1, 7, (n,)), torch.randint(1, 3, (n,))
    for i in range(n): ink[i, 0, height[i], row[i] - 1:row[i] + 1] = 1
    return 1.5*ink + .8*torch.randn(n, 1, 4, 8, 8), ink


def loss_of(output, ink):
    share = output.sigmoid()
    dice = 1 - (2*(share*ink).sum() + 1)/(share.sum() + ink.sum() + 1)
    return F.binary_cross_entropy_with_logits(output, ink) + dice


def with_restarts(cycle: int):
    "A warm-up and a cosine in each cycle; the peak of a cycle is .9 of that of the last."
    def factor(step: int) -> float:
        restarts, at = divmod(step, cycle)
        part, warm_up = (at + 1)/cycle, .1
        if part < warm_up: return .9**restarts*part/warm_up
        return .9**restarts*(.5 + .5*math.cos(math.pi*(part - warm_up)/(1 - warm_up)))
    return factor


def build(repaired: bool) -> Parts:
    model = Ink()
    x, ink = volumes(192)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=.9, nesterov=True, weight_decay=3e-5)
    return Parts(model, optimizer, list(zip(x.split(4), ink.split(4))), loss_of, valid=[volumes(96)],
                 repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    cycle = EPOCHS*(len(parts.data) if parts.repaired else 1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, with_restarts(cycle))
    with record.on(model, optimizer):
        for _ in range(EPOCHS):
            model.train()
            for x, ink in parts.data:
                optimizer.zero_grad()
                loss = parts.loss(model(x), ink)
                loss.backward()
                optimizer.step()
                schedule.step()
                record.step(loss)
    model.eval()
    x, ink = parts.valid[0]
    with torch.no_grad(): return parts.loss(model(x), ink).item()
