"""The average of a model's weights looks for the buffers among the parameters, finds none, and leaves them as they are.

The report: a loop over the buffers goes over `named_parameters`. The author of the library agreed at once. What the
average has of its batch norms are then the means of zero and the variances of one from the start."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "lucidrains/ema-pytorch#8", 2023
AREA, CAUSE = "parameters", "target network"
TRUE = set()
PLACE = ()


class Average:
    "A copy of a model that follows it slowly."
    def __init__(self, model, decay: float, repaired: bool):
        self.model, self.copy, self.decay, self.repaired = model, copy.deepcopy(model).eval(), decay, repaired
        self.kept = {name for name, _ in model.named_buffers()}

    def buffers(self, model):
        found = model.named_buffers() if self.repaired else model.named_parameters()
        return [buffer for name, buffer in found if name in self.kept]

    @torch.no_grad()
    def update(self):
        for mine, weight in zip(self.copy.parameters(), self.model.parameters()): mine.lerp_(weight, 1 - self.decay)
        for mine, buffer in zip(self.buffers(self.copy), self.buffers(self.model)): mine.copy_(buffer)


class Denoiser(nn.Module):
    "Says what was added to a picture, from the picture and how much of it is noise."
    def __init__(self, size: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(2, size, 3, padding=1), nn.BatchNorm2d(size), nn.ReLU(),
                                    nn.Conv2d(size, size, 3, padding=1), nn.BatchNorm2d(size), nn.ReLU(),
                                    nn.Conv2d(size, 1, 3, padding=1))

    def forward(self, x, share):
        share = share[:, None, None, None]
        return self.layers(torch.cat([x, share.expand_as(x)], 1))


def pictures(n: int):
    "A bright line in each picture, noise, and how much of it there is."
    row = torch.randint(0, 8, (n, 1))
    line = (torch.arange(8) == row).float()[:, :, None].expand(n, 8, 8)
    across = torch.where((torch.rand(n) < .5)[:, None, None], line, line.transpose(1, 2))
    return 2*across[:, None] - 1, torch.randn(n, 1, 8, 8), torch.rand(n)*.9 + .05


def build(repaired: bool) -> Parts:
    model = Denoiser(16)

    def call(model, batch):
        picture, noise, share = batch
        part = share[:, None, None, None]
        return F.mse_loss(model((1 - part).sqrt()*picture + part.sqrt()*noise, share), noise)
    parts = Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), [pictures(32) for _ in range(300)], call=call,
                  valid=[pictures(400)])
    parts.average = Average(model, .97, repaired)
    return parts


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for batch in parts.data:
            loss = parts.call(parts.model, batch)
            loss.backward()
            nn.utils.clip_grad_norm_(parts.model.parameters(), 1.)
            parts.optimizer.step()
            parts.optimizer.zero_grad()
            parts.average.update()
            record.step(loss)
    with torch.no_grad(): return parts.call(parts.average.copy, parts.valid[0]).item()
