"""Batch norm sees one pair of images at a time, and its running statistics fit none of them.

The report: a graph network that matches points of two images works while it is in training mode, and is highly degraded
in eval mode, for training data too. The author suspects the batch size of one; without batch norm the problem is
solved."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "magicleap/SuperGluePretrainedNetwork#77", 2021
AREA, CAUSE = "modes", "batch norm"
TRUE = set()
PLACE = ("places.1", "places.4", "mix.1")
POINTS = 16


def layers(sizes: list[int], norm: bool) -> nn.Sequential:
    "Convolutions over points, with norms between them."
    found = []
    for i, (a, b) in enumerate(zip(sizes, sizes[1:]), 2):
        found.append(nn.Conv1d(a, b, 1))
        if i < len(sizes): found += [nn.BatchNorm1d(b) if norm else nn.Identity(), nn.ReLU()]
    return nn.Sequential(*found)


class Matcher(nn.Module):
    "Descriptors and places of points, one round of attention to the other image, and a score for each two points."
    def __init__(self, size: int, norm: bool):
        super().__init__()
        self.places = layers([2, 32, 32, size], norm)
        self.query, self.key, self.value = (nn.Conv1d(size, size, 1) for _ in range(3))
        self.mix = layers([2*size, 2*size, size], norm)
        self.last, self.size = nn.Conv1d(size, size, 1), size

    def other(self, x, y):
        "What a point is told by the points of the other image."
        weights = (self.query(x).transpose(1, 2) @ self.key(y)/self.size**.5).softmax(2)
        return x + self.mix(torch.cat([x, (weights @ self.value(y).transpose(1, 2)).transpose(1, 2)], 1))

    def forward(self, first, second):
        (words, places), (others, their) = first, second
        x, y = words + self.places(places), others + self.places(their)
        x, y = self.other(x, y), self.other(y, x)
        return self.last(x).transpose(1, 2) @ self.last(y)/self.size**.5


def pair(size: int):
    "Points with weak descriptors, of which the second image is moved, scaled and in another order."
    words, places = torch.randn(1, size, POINTS), torch.rand(1, 2, POINTS)
    order = torch.randperm(POINTS)
    scale, moved = .2 + 3*torch.rand(1), 6*torch.randn(1, 2, 1)
    light = 1.5*torch.randn(1, size, 1)
    others = words + torch.randn(words.shape)
    return ((words + light, scale*places + moved), ((others + light)[..., order], (scale*places + moved)[..., order]),
            order.argsort())


def match(model, batch):
    scores = model(*batch[:2])[0]
    return (F.cross_entropy(scores, batch[2]) + F.cross_entropy(scores.T, batch[2].argsort()))/2


def build(repaired: bool) -> Parts:
    model = Matcher(16, norm=not repaired)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return Parts(model, optimizer, [pair(16) for _ in range(500)], call=match, valid=[pair(16) for _ in range(100)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    model.train()
    with record.on(model, optimizer):
        for batch in parts.data:
            loss = parts.call(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            record.step(loss)
    model.eval()
    with torch.no_grad(): wrong = [(model(*b[:2])[0].argmax(1) != b[2]).float().mean() for b in parts.valid]
    return torch.stack(wrong).mean().item()/(1 - 1/POINTS)
