"""The focal loss raises one minus the probability to a power below one, which has an infinite slope at zero.

The report: the loss for two classes has NaN gradients when the sigmoid of an output is exactly one or zero and the
power is below one. The author proposed to add the small number there too; the maintainers took it up."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "kornia/kornia#918", 2021
AREA, CAUSE = "precision", "NaN or Inf"
TRUE = set()
PLACE = ()


class Segmenter(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(2, size, 3, padding=1), nn.ReLU(), nn.Conv2d(size, size, 3, padding=1),
                                    nn.ReLU(), nn.Conv2d(size, 1, 1))

    def forward(self, x): return self.layers(x)


def focal(output, mask, repaired: bool, gamma: float = .5, small: float = 1e-8):
    chance = output.sigmoid()
    inside = small if repaired else 0.
    wrong, right = 1 - chance + inside, chance + inside
    return -(wrong**gamma*mask*(chance + small).log() + right**gamma*(1 - mask)*(1 - chance + small).log()).mean()


def images(n: int):
    "A bright spot of any strength in a picture of two channels; the mask is where it is."
    row, column = torch.meshgrid(torch.arange(16.), torch.arange(16.), indexing="ij")
    middle, radius = torch.empty(n, 2, 1, 1).uniform_(3, 13), torch.empty(n, 1, 1).uniform_(2, 5)
    mask = ((row - middle[:, 0]).square() + (column - middle[:, 1]).square() < radius.square()).float()[:, None]
    strength = torch.empty(n, 1, 1, 1).uniform_(0, 3).exp()
    return torch.cat([strength*(mask - .5), mask + torch.randn(n, 1, 16, 16)], 1) + .5*torch.randn(n, 2, 16, 16), mask


def build(repaired: bool) -> Parts:
    model = Segmenter(8)
    x, mask = images(512)
    data = [(x[i:i + 16], mask[i:i + 16]) for i in range(0, 512, 16)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data,
                 lambda output, mask: focal(output, mask, repaired), valid=[images(256)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            for x, mask in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), mask)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, mask = parts.valid[0]
    with torch.no_grad(): return F.binary_cross_entropy_with_logits(parts.model(x), mask).item()/math.log(2)
