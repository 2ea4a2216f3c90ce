"""Boxes come as two corners, where the loss and whoever uses the detector take them for a center and a size.

The report: after fine-tuning, the boxes lie far beside the objects. The maintainer found the cause in it: the data set
converts the boxes to corners, while the losses and the predictions take centers and sizes, and changed the data set."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "Sompote/SAM3_LoRA#19", 2026
AREA, CAUSE = "data and labels", "labels wrongly encoded"
TRUE = set()
PLACE = ()


def to_corners(box):
    center, size = box.chunk(2, 1)
    return torch.cat([center - size/2, center + size/2], 1)


def overlap(a, b, general: bool = False):
    "Intersection over union of boxes that are given by corners, or its general form."
    inner = (torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])).clamp(min=0).prod(1)
    union = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - inner
    if not general: return inner/union
    outer = (torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])).prod(1)
    return inner/union - (outer - union)/outer


class Finder(nn.Module):
    "Whether an image has an object, and its box: one query over the places of a small network."
    def __init__(self, size: int = 32):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, size, 3, 2, 1), nn.ReLU(), nn.Conv2d(size, size, 3, 2, 1), nn.ReLU())
        self.place = nn.Parameter(torch.randn(1, 25, size)/5)
        self.query = nn.Parameter(torch.randn(1, 4, size))
        self.attention = nn.MultiheadAttention(size, 4, batch_first=True)
        self.present = nn.Linear(4*size, 1)
        self.box = nn.Sequential(nn.Linear(4*size, size), nn.ReLU(), nn.Linear(size, 4))

    def forward(self, x):
        seen = self.body(x).flatten(2).transpose(1, 2) + self.place
        found = self.attention(self.query.expand(len(x), -1, -1), seen, seen)[0].flatten(1)
        return self.present(found).squeeze(1), self.box(found).sigmoid()


def images(n: int, side: int = 20):
    "Bright rectangles on noise; a box is left, top, width and height, and a third of the images have none."
    size = torch.randint(4, 11, (n, 2))
    corner = (torch.rand(n, 2)*(side - size + 1)).long()
    present = torch.rand(n) < .67
    x, places = .4*torch.randn(n, 1, side, side), torch.arange(side)
    inside = (places >= corner.unsqueeze(2)) & (places < (corner + size).unsqueeze(2))
    x[:, 0] += inside[:, 1, :, None]*inside[:, 0, None]*present[:, None, None]
    return x, present, torch.cat([corner, size], 1)/side


def build(repaired: bool) -> Parts:
    model = Finder()

    def call(model, batch):
        x, present, box = batch
        logit, found = model(x)
        found, box = found[present], box[present]
        apart = 1 - overlap(to_corners(found), to_corners(box), general=True)
        return F.binary_cross_entropy_with_logits(logit, present.float()) + 5*F.l1_loss(found, box) + 2*apart.mean()

    x, present, box = images(768)
    left, size = box.chunk(2, 1)
    wanted = torch.cat([left + size/2, size] if repaired else [left, left + size], 1)
    data = list(zip(x.split(32), present.split(32), wanted.split(32)))
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=2e-3), data, call=call, valid=[images(256)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(8):
            model.train()
            for batch in parts.data:
                optimizer.zero_grad()
                loss = parts.call(model, batch)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.)
                optimizer.step()
                record.step(loss)
    x, present, box = parts.valid[0]
    left, size = box.chunk(2, 1)
    model.eval()
    with torch.no_grad(): found = to_corners(model(x)[1])
    return 1 - overlap(found, torch.cat([left, left + size], 1))[present].mean().item()
