"""Images are trained on one at a time, with batch norm.

The report: with a batch of one the results of a network for what stands out in an image are far below those with a
batch of eight. The maintainer advised another kind of norm, which does not need a large batch; the author then saw a
large improvement."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "xuebinqin/BASNet#42", 2020
AREA, CAUSE = "modes", "batch norm"
TRUE = set()
PLACE = ("down.1", "middle.1", "up.1")


def stage(before: int, after: int, repaired: bool, stride: int = 1) -> nn.Sequential:
    norm = nn.GroupNorm(4, after) if repaired else nn.BatchNorm2d(after)
    return nn.Sequential(nn.Conv2d(before, after, 3, stride, 1), norm, nn.ReLU())


class Finder(nn.Module):
    "A small U with one way across: how much each pixel stands out."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.down, self.middle = stage(3, size, repaired), stage(size, 2*size, repaired, stride=2)
        self.up = stage(3*size, size, repaired)
        self.last = nn.Conv2d(size, 1, 1)

    def forward(self, x):
        x = self.down(x)
        below = F.interpolate(self.middle(x), scale_factor=2)
        return self.last(self.up(torch.cat([x, below], 1)))


def images(n: int):
    "A bright square on a ground of any brightness and contrast; in some images there is no square."
    mask = torch.zeros(n, 1, 16, 16)
    corner, side = torch.randint(0, 9, (n, 2)), torch.randint(3, 8, (n,))
    for i, ((row, column), width) in enumerate(zip(corner.tolist(), side.tolist())):
        if i % 3: mask[i, :, row:row + width, column:column + width] = 1
    ground = .5*torch.randn(n, 3, 16, 16) + torch.randn(n, 3, 1, 1)
    return (ground + 1.5*mask)*torch.empty(n, 1, 1, 1).uniform_(.5, 2), mask


def build(repaired: bool) -> Parts:
    model = Finder(8, repaired)
    x, mask = images(200)
    data = list(zip(x.split(1), mask.split(1)))
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, F.binary_cross_entropy_with_logits,
                 valid=[images(200)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(3):
            parts.model.train()
            for x, mask in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), mask)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    x, mask = parts.valid[0]
    with torch.no_grad(): error = parts.loss(parts.model(x), mask)
    share = mask.mean().item()
    return error.item()/-(share*math.log(share) + (1 - share)*math.log(1 - share))
