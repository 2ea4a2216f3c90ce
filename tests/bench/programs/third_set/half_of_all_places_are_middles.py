"""The last layer for heatmaps of middles has no bias for how rare they are: at first all places are half sure.

The report is a merged change to a detector: the bias is set so that the first answers are as rare as in the paper of
the focal loss; the reporter asks to compare the loss before and after it."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "yjh0410/CenterNet-Lite#14", 2021
AREA, CAUSE = "initialisation", "weights too large"
TRUE = {"first loss too high"}
PLACE = ("heat", "heat.2")

kinds, wide = 3, 10


def block(before: int, after: int, stride: int = 1):
    return nn.Sequential(nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.LeakyReLU(.1))


class Detector(nn.Module):
    "How likely each place is the middle of a thing of each kind, and how large that thing is."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.backbone = nn.Sequential(block(1, size), block(size, size, 2), block(size, size))
        self.heat = nn.Sequential(nn.Conv2d(size, size, 3, padding=1), nn.LeakyReLU(.1), nn.Conv2d(size, kinds, 1))
        self.sides = nn.Conv2d(size, 1, 1)
        if repaired: nn.init.constant_(self.heat[2].bias, -math.log((1 - .01)/.01))

    def forward(self, x):
        x = self.backbone(x)
        return self.heat(x).sigmoid(), self.sides(x)[:, 0]


def focal(found, heat):
    found, middle = found.clamp(1e-4, 1 - 1e-4), heat == 1
    sure = found.log()*(1 - found)**2*middle
    unsure = (1 - found).log()*found**2*(1 - heat)**4*~middle
    return -(sure + unsure).sum()/len(heat)


def scenes(n: int):
    "One bright thing in each image: a square, a cross or a ring, of two sizes."
    x, heat = .6*torch.randn(n, 1, 2*wide, 2*wide), torch.zeros(n, kinds, wide, wide)
    kind, half, middle = torch.randint(0, kinds, (n,)), torch.randint(2, 4, (n,)), torch.randint(2, wide - 2, (n, 2))
    at = torch.arange(-3, 4)
    across, along = at.abs()[None], at.abs()[:, None]
    for i in range(n):
        inside = torch.maximum(across, along) <= half[i] - 1
        shape = (inside, inside & ((across == 0) | (along == 0)), inside & ~((across == 0) & (along == 0)))[kind[i]]
        down, right = (2*middle[i]).tolist()
        x[i, 0, down - 3:down + 4, right - 3:right + 4] += 1.5*shape
        y = torch.arange(wide)
        near = (-((y[:, None] - middle[i, 0])**2 + (y - middle[i, 1])**2)/2.).exp()
        heat[i, kind[i]] = near
    return x, heat, half.float(), middle, kind


def build(repaired: bool) -> Parts:
    model = Detector(12, repaired)

    def call(model, batch):
        x, heat, half, middle, _ = batch
        found, sides = model(x)
        return focal(found, heat) + .1*F.smooth_l1_loss(sides[torch.arange(len(x)), middle[:, 0], middle[:, 1]], half)
    data = [scenes(16) for _ in range(120)]
    return Parts(model, torch.optim.SGD(model.parameters(), lr=1e-2, momentum=.9, weight_decay=5e-4), data, call=call,
                 valid=[scenes(200)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for batch in parts.data:
            loss = parts.call(parts.model, batch)
            loss.backward()
            parts.optimizer.step()
            parts.optimizer.zero_grad()
            record.step(loss)
    x, _, _, middle, kind = parts.valid[0]
    parts.model.eval()
    with torch.no_grad(): found = parts.model(x)[0].flatten(1).argmax(1)
    return (found != (kind*wide + middle[:, 0])*wide + middle[:, 1]).float().mean().item()
