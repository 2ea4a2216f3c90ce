"""A softmax that should weigh the places of a picture goes over a dimension of one, so all weights are one.

The report is a merged change: with `softmax(2)` every element of the attention is 1.0 and of no use for what follows;
with `softmax(1)` the weights differ from place to place. The author had asked for the reason, and merged it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "phanideepgampa/stacked-capsule-networks#5", 2020
AREA, CAUSE = "structure", "wrong axis"
TRUE = {"one class"}
PLACE = ("encoder",)

side, capsules = 12, 3


class Encoder(nn.Module):
    "For each part that a picture may have: its place and how bright it is, looked up where attention is."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.front = nn.Sequential(nn.Conv2d(5, size, 3, padding=1), nn.ReLU(), nn.Conv2d(size, size, 3, padding=1),
                                   nn.ReLU(), nn.Conv2d(size, capsules*4, 1))
        self.over = 1 if repaired else 2

    def forward(self, x):
        x = self.front(x).unflatten(1, (capsules, 4)).flatten(3).permute(1, 0, 3, 2)  # part, picture, place, number
        pose, attention = x[..., :3].flatten(0, 1), x[..., 3:].flatten(0, 1)
        weight = attention.softmax(self.over)
        return (pose*weight).sum(1).unflatten(0, (capsules, -1)).transpose(0, 1)


class Autoencoder(nn.Module):
    "Takes a picture apart and puts it together from spots, each with a colour of its own."
    def __init__(self, repaired: bool):
        super().__init__()
        self.encoder = Encoder(24, repaired)
        self.colours = nn.Parameter(torch.eye(3) + .1*torch.randn(capsules, 3))
        lines = torch.linspace(-1, 1, side)
        self.register_buffer("places", torch.stack(torch.meshgrid(lines, lines, indexing="ij")))

    def forward(self, x):
        pose = self.encoder(torch.cat([x, self.places.expand(len(x), -1, -1, -1)], 1))
        at, bright = pose[..., :2], pose[..., 2].sigmoid()
        away = (self.places - at[..., None, None]).square().sum(2)
        return torch.einsum("nkhw,kc->nchw", bright[..., None, None]*(-away/.2).exp(), self.colours)


def pictures(n: int):
    "A red, a green and a blue spot, or some of them."
    lines = torch.linspace(-1, 1, side)
    at, there = 1.6*torch.rand(n, 3, 2) - .8, (torch.rand(n, 3) < .8).float()
    away = (lines[:, None] - at[..., 0, None, None]).square() + (lines - at[..., 1, None, None]).square()
    return there[..., None, None]*(-away/.2).exp() + .05*torch.randn(n, 3, side, side)


def build(repaired: bool) -> Parts:
    model = Autoencoder(repaired)
    data = [pictures(24) for _ in range(50)]
    def call(model, x): return F.mse_loss(model(x), x)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, call=call,
                 valid=[pictures(300)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            for x in parts.data:
                loss = parts.call(parts.model, x)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad(): return (parts.call(parts.model, parts.valid[0])/parts.valid[0].var()).item()
