"""The loss for boxes counts anchors whose match is 1, where the match is the number of the class.

The report: positive samples are found by a match above 0 for the classes, but for the boxes by a match of exactly 1, so
boxes of other classes are never learned. The maintainer said at first that the match is a flag, then that it is not,
and mended it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "MIC-DKFZ/medicaldetectiontoolkit#59", 2019
AREA, CAUSE = "loss and task", "padding counts"
TRUE = set()
PLACE = ("box",)

classes, cells = 3, 6  # class 0 is the background; an anchor of 4 by 4 pixels at each of 6 by 6 cells


class Detector(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, size, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                                  nn.Conv2d(size, size, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                                  nn.Conv2d(size, size, 3, padding=1), nn.ReLU())
        self.kind = nn.Conv2d(size, 1 + classes, 3, padding=1)
        self.box = nn.Conv2d(size, 4, 3, padding=1)

    def forward(self, image):
        x = self.body(image)
        return self.kind(x).flatten(2).transpose(1, 2), self.box(x).flatten(2).transpose(1, 2)


def scans(n: int):
    "One spot an image, of a class that its brightness tells; the targets are a class and a box for each anchor."
    label, size = torch.randint(1, classes + 1, (n,)), 3 + 4*torch.rand(n, 2)
    center = 4 + 16*torch.rand(n, 2)
    grid = torch.arange(24.)
    inside = [(grid - center[:, i:i + 1]).abs() < size[:, i:i + 1]/2 for i in (0, 1)]
    image = (.4 + .3*label)[:, None, None]*(inside[0][:, :, None] & inside[1][:, None])
    match = torch.zeros(n, cells*cells, dtype=torch.long)
    cell = (center/4).floor().clamp(max=cells - 1)
    index = (cell[:, 0]*cells + cell[:, 1]).long()
    match[torch.arange(n), index] = label
    box = torch.zeros(n, cells*cells, 4)
    box[torch.arange(n), index] = torch.cat([(center - 4*cell - 2)/4/.1, (size/4).log()/.2], 1)
    return (image + .1*torch.randn(n, 24, 24))[:, None], match, box


def build(repaired: bool) -> Parts:
    model = Detector(16)

    def kind_loss(score, match):
        "All positive anchors, and as many of the negative ones that are hardest."
        loss = F.cross_entropy(score.transpose(1, 2), match, reduction="none")
        hard = loss[match == 0].topk(3*int((match > 0).sum()))[0]
        return (loss[match > 0].mean() + hard.mean())/2

    def call(model, batch):
        image, match, box = batch
        score, found = model(image)
        chosen = match > 0 if repaired else match == 1
        return kind_loss(score, match) + F.smooth_l1_loss(found[chosen], box[chosen])

    data = [scans(16) for _ in range(40)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, call=call, valid=[scans(256)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(5):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    image, match, box = parts.valid[0]
    with torch.no_grad(): found = parts.model(image)[1]
    return (found - box)[match > 0].abs().mean().item()/box[match > 0].abs().mean().item()
