"""A function that freezes and thaws a model leaves out what does not require gradients, so nothing ever thaws.

The report, by the author: parameters cannot be made trainable again once they were frozen; a condition has to go."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "nttcslab/byol-a#7", 2021
AREA, CAUSE = "parameters", "frozen part"
TRUE = {"not trained"}
PLACE = ("encoder",)

bands, frames, classes = 16, 20, 4


class Listener(nn.Module):
    "An encoder of spectrograms and a layer for the classes."
    def __init__(self, size: int):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, size, 3, stride=2, padding=1), nn.ReLU(),
                                     nn.Conv2d(size, size, 3, stride=2, padding=1), nn.ReLU(),
                                     nn.AdaptiveMaxPool2d(1), nn.Flatten())
        self.head = nn.Linear(size, classes)

    def forward(self, x): return self.head(self.encoder(x))


def set_trainable(model, trainable: bool, repaired: bool):
    for weight in model.parameters():
        if repaired or weight.requires_grad: weight.requires_grad = trainable


def sounds(n: int):
    "A pitch that rises or falls, fast or slowly, in noise."
    kind, first = torch.randint(0, classes, (n,)), torch.randint(4, 12, (n, 1))
    slope = torch.tensor([-.5, -.2, .2, .5])[kind]
    pitch = first + slope[:, None]*(torch.arange(frames) - frames/2)
    loud = (-(torch.arange(bands)[:, None] - pitch[:, None])**2).exp()
    return (2*loud + .3*torch.randn(n, bands, frames))[:, None], kind


def build(repaired: bool) -> Parts:
    model = Listener(16)
    set_trainable(model.encoder, False, repaired)
    data = [sounds(64) for _ in range(40)]
    parts = Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, F.cross_entropy, valid=[sounds(500)])
    parts.thaw = lambda: set_trainable(model.encoder, True, repaired)
    return parts


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for epoch in range(8):
            if epoch == 1: parts.thaw()
            for x, kind in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), kind)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, kind = parts.valid[0]
    with torch.no_grad(): return (parts.loss(parts.model(x), kind)/torch.tensor(float(classes)).log()).item()
