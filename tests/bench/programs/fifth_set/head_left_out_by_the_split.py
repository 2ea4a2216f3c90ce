"""A function splits a detector into groups for the optimizer, and names the body's layers only.

The report: the loss of a detector stays at 48.9, 48.9 and 48.7. The reporter found that the split has no layer of the
head, so Adam does not get it, and lists them in a second group as the repair. Nobody answered."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "fastai/course-v3#598", 2023
AREA, CAUSE = "parameters", "not in the optimizer"
TRUE = set()
PLACE = ("shared", "boxes", "kinds", "shared.weight", "shared.bias", "boxes.weight", "boxes.bias", "kinds.weight",
         "kinds.bias")

side, cells, things = 16, 4, 3


class Detector(nn.Module):
    "For each cell of a grid: where the box of a thing is in relation to the cell, and what it is, if anything."
    def __init__(self, size: int):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, size, 3, stride=2, padding=1), nn.BatchNorm2d(size), nn.ReLU(),
                                  nn.Conv2d(size, 2*size, 3, stride=2, padding=1), nn.BatchNorm2d(2*size), nn.ReLU())
        self.drop = nn.Dropout(.1)
        self.shared = nn.Conv2d(2*size, 2*size, 3, padding=1)
        self.boxes, self.kinds = nn.Conv2d(2*size, 4, 3, padding=1), nn.Conv2d(2*size, things + 1, 3, padding=1)
        self.kinds.bias.data.fill_(-1)

    def forward(self, x):
        x = F.relu(self.shared(self.drop(self.body(x))))
        return self.boxes(x), self.kinds(x)


def split(model, repaired: bool):
    "The groups of layers, which may get rates of their own."
    groups = [*model.body, model.drop]
    if repaired: groups += [model.shared, model.boxes, model.kinds]
    return [{"params": [*layer.parameters()]} for layer in groups if [*layer.parameters()]]


def pictures(n: int):
    "A rectangle of one of three colours; the cell with its middle has to find it."
    kind, size = torch.randint(0, things, (n,)), torch.randint(3, 8, (n, 2))
    top = (torch.rand(n, 2)*(side - size + 1)).long()
    place, middle = torch.arange(side), top + size/2
    inside = (place >= top[..., None]) & (place < (top + size)[..., None])
    x = .3*torch.randn(n, 3, side, side)
    x[torch.arange(n), kind] += 2*(inside[:, 0, :, None] & inside[:, 1, None])
    cell = (middle/side*cells).long()
    box = torch.cat([middle/side*cells - cell - .5, size/4 - 1], 1)
    return x, box, cell, kind


def loss_of(found, box, cell, kind):
    boxes, kinds = found
    every, wanted = torch.arange(len(box)), torch.full((len(box), cells, cells), things)
    wanted[every, cell[:, 0], cell[:, 1]] = kind
    where = F.l1_loss(boxes[every, :, cell[:, 0], cell[:, 1]], box)
    return where + 10*F.cross_entropy(kinds, wanted)


def build(repaired: bool) -> Parts:
    model = Detector(12)
    data = [pictures(32) for _ in range(30)]
    def call(model, batch): return loss_of(model(batch[0]), *batch[1:])
    return Parts(model, torch.optim.Adam(split(model, repaired), lr=2e-3), data, call=call, valid=[pictures(300)])


def train(parts: Parts, record) -> float:
    with torch.no_grad(): first = parts.call(parts.model, parts.valid[0]).item()
    with record.on(parts.model, parts.optimizer):
        for _ in range(5):
            parts.model.train()
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    parts.model.eval()
    with torch.no_grad(): return parts.call(parts.model, parts.valid[0]).item()/first
