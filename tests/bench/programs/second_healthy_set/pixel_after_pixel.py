"""Pixels of a picture are told one after the other, by convolutions that see only what came before.

Habits of the source: weights of what comes later are set to zero in place, in each forward pass, so that the optimizer
moves them and they are put back; the first layer does not see the pixel itself, the others do; no norms and no skips;
the input is in 0 to 1 and the target is its level; SGD with Nesterov's momentum at one rate; after each epoch pictures
are drawn pixel by pixel.
Error: surprise of pixels held back, over that of their frequencies: .6; untrained 1.4, frequencies 1."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.bench.programs import Parts

SOURCE, YEAR = "jzbontar/pixelcnn-pytorch main.py", 2017
SIDE, LEVELS = 8, 16


class MaskedConv(nn.Conv2d):
    def __init__(self, sees_itself, c, d, kernel):
        super().__init__(c, d, kernel, padding=kernel // 2)
        self.register_buffer("mask", torch.ones_like(self.weight))
        self.mask[:, :, kernel // 2, kernel // 2 + sees_itself:] = 0
        self.mask[:, :, kernel // 2 + 1:] = 0

    def forward(self, x):
        self.weight.data *= self.mask
        return super().forward(x)


def pictures(n):
    "Bars of one of three widths, upright or level, with a few pixels of another level."
    width, start, level = [torch.randint(low, high, (n, 1, 1)) for low, high in ((2, 5), (0, 8), (4, LEVELS))]
    bars = ((torch.arange(SIDE) + start) // width % 2*level).expand(n, SIDE, SIDE)
    bars = torch.where(torch.rand(n, 1, 1) < .5, bars, bars.mT)
    other = torch.randint(LEVELS, bars.shape)
    return torch.where(torch.rand(bars.shape) < .03, other, bars)[:, None]/(LEVELS - 1)


def surprise(model, x): return F.cross_entropy(model(x), (x[:, 0]*(LEVELS - 1)).round().long())


def build(repaired: bool) -> Parts:
    c = 24
    model = nn.Sequential(MaskedConv(False, 1, c, 5), nn.ReLU(True), MaskedConv(True, c, c, 5), nn.ReLU(True),
                          MaskedConv(True, c, c, 5), nn.ReLU(True), MaskedConv(True, c, LEVELS, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=.1, momentum=.9, nesterov=True)
    return Parts(model, optimizer, DataLoader(pictures(640), 32, shuffle=True), call=surprise,
                 valid=DataLoader(pictures(256), 64))


@torch.no_grad()
def drawn(model, n=4):
    x = torch.zeros(n, 1, SIDE, SIDE)
    for i in range(SIDE):
        for j in range(SIDE):
            x[:, :, i, j] = torch.multinomial(model(x)[:, :, i, j].softmax(1), 1)/(LEVELS - 1)
    return x


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(8):
            for x in parts.data:
                loss = parts.call(model, x)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
            drawn(model)
    share = (parts.data.dataset*(LEVELS - 1)).round().long().flatten().bincount(minlength=LEVELS)
    share = (share + 1e-6)/share.sum()
    with torch.no_grad(): error = sum(parts.call(model, x).item() for x in parts.valid)/len(parts.valid)
    return error/-(share*share.log()).sum().item()
