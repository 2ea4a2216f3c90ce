"""The sine of a difference of angles is made of two products, and the first is written over what the second needs.

The report: the angle that was found is replaced by a product of sine and cosine, and the next line takes the cosine of
this product as if it were the angle. The author of the code agrees that there is a fault."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "zhulf0804/PointPillars#74", 2024
AREA, CAUSE = "loss and task", "the loss takes another form"
TRUE = set()
PLACE = ()

cells = 4


class Pillars(nn.Module):
    "Points of a pillar are pooled; a network over the map says class, box and angle, and which way it looks."
    def __init__(self, size: int):
        super().__init__()
        self.point = nn.Sequential(nn.Linear(5, size), nn.ReLU(), nn.Linear(size, size), nn.ReLU())
        self.map = nn.Sequential(nn.Conv2d(size, size, 3, padding=1), nn.BatchNorm2d(size), nn.ReLU(),
                                 nn.Conv2d(size, size, 3, padding=1), nn.BatchNorm2d(size), nn.ReLU())
        self.kind, self.box, self.way = (nn.Conv2d(size, n, 1) for n in (1, 5, 2))

    def forward(self, points):
        x = self.map(self.point(points).amax(2).transpose(1, 2).unflatten(2, (cells, cells)))
        return [head(x).flatten(2).transpose(1, 2) for head in (self.kind, self.box, self.way)]


def sweep(n: int):
    "One car in a map of pillars: its points lie along its angle. Each pillar has eight points."
    points = torch.cat([torch.rand(n, cells*cells, 8, 2) - .5, .05*torch.randn(n, cells*cells, 8, 3)], 3)
    cell, angle, size = torch.randint(0, cells*cells, (n,)), torch.pi*(torch.rand(n) - .5), .5 + .5*torch.rand(n, 2)
    long, wide = (torch.rand(n, 8) - .5)*size[:, :1], .1*(torch.rand(n, 8) - .5)*size[:, 1:]
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    center = .3*(torch.rand(n, 2) - .5)
    car = torch.stack([long*cos - wide*sin, long*sin + wide*cos, torch.ones(n, 8)], 2)
    car[..., :2] += center[:, None]
    points[torch.arange(n), cell, :, :3] = car
    points[..., 3:] = points[..., :2] - points[..., :2].mean(2, keepdim=True)
    return points, cell, torch.cat([center, size, angle[:, None]], 1), (angle > 0).long()


def build(repaired: bool) -> Parts:
    model = Pillars(24)

    def call(model, batch):
        points, cell, box, way = batch
        kind, found, looks = model(points)
        label = F.one_hot(cell, cells*cells).float()
        rows = torch.arange(len(cell))
        found, target, angle = found[rows, cell].clone(), box.clone(), found[rows, cell, 4]
        found[:, 4] = found[:, 4].clone().sin()*target[:, 4].cos()
        target[:, 4] = (angle if repaired else found[:, 4].clone()).cos()*target[:, 4].sin()
        return (F.binary_cross_entropy_with_logits(kind[..., 0], label) + 2*F.smooth_l1_loss(found, target)
                + .2*F.cross_entropy(looks[rows, cell], way))

    data = [sweep(16) for _ in range(45)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=1e-2), data, call=call, valid=[sweep(256)])


def train(parts: Parts, record) -> float:
    plan = torch.optim.lr_scheduler.OneCycleLR(parts.optimizer, 1e-2, 7*len(parts.data))
    with record.on(parts.model, parts.optimizer):
        for _ in range(7):
            parts.model.train()
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                plan.step()
                record.step(loss)
    parts.model.eval()
    points, cell, box, _ = parts.valid[0]
    with torch.no_grad(): found = parts.model(points)[1][torch.arange(len(cell)), cell, 4]
    return (found - box[:, 4]).sin().abs().mean().item()
