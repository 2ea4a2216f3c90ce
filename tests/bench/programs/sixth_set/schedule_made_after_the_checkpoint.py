"""A run goes on from a checkpoint, but the schedule is made after the optimizer was loaded and sets the first rate.

The report: in a library for point clouds a run that is taken up again has the learning rate of its beginning. The
optimizer is made and gets its state, with the rate it had, and only then the schedule is made. The change that loads
the optimizer last was merged; a maintainer said that this must have been broken at some point."""
import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "torch-points3d/torch-points3d#630", 2021
AREA, CAUSE = "optimizer and schedule", "schedule does not fit"
TRUE = {"learning rate too large", "spike"}
PLACE = ()
RATE = 1.


class Points(nn.Module):
    "The kind of each point from its place and from the largest features in the cloud."
    def __init__(self, classes: int):
        super().__init__()
        self.local = nn.Sequential(nn.Linear(3, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 48))
        self.head = nn.Sequential(nn.Linear(96, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, classes))

    def forward(self, cloud):
        n, points, _ = cloud.shape
        x = self.local(cloud.flatten(0, 1)).view(n, points, -1)
        x = torch.cat([x, x.amax(1, keepdim=True).expand_as(x)], 2)
        return self.head(x.flatten(0, 1)).view(n, points, -1)


def clouds(n: int):
    "Points in a room of unknown size: floor, walls, and what stands between them."
    size = 1 + 2*torch.rand(n, 1, 3)
    kind = torch.randint(0, 3, (n, 24))
    cloud = (torch.rand(n, 24, 3) - .5)*size
    cloud[..., 2] = torch.where(kind == 0, -size[..., 2]/2, cloud[..., 2])
    cloud[..., 0] = torch.where(kind == 1, size[..., 0]/2, cloud[..., 0])
    return cloud + .03*torch.randn(n, 24, 3), kind


def loss_of(output, kind): return F.cross_entropy(output.flatten(0, 1), kind.flatten())


class Falling:
    "A rate that falls after some epochs. As schedules of that time, it sets the first rate when it is made."
    def __init__(self, optimizer, rate: float):
        self.optimizer, self.epoch = optimizer, 0
        for group in self.optimizer.param_groups: group["lr"] = rate

    def step(self):
        self.epoch += 1
        if self.epoch in (4, 7):
            for group in self.optimizer.param_groups: group["lr"] *= .1


def epoch(parts: Parts, record=None):
    parts.model.train()
    for cloud, kind in parts.data:
        parts.optimizer.zero_grad()
        loss = parts.loss(parts.model(cloud), kind)
        loss.backward()
        parts.optimizer.step()
        if record: record.step(loss)
    parts.schedule.step()


def fresh() -> tuple:
    model = Points(3)
    return model, torch.optim.SGD(model.parameters(), lr=RATE, momentum=.9)


def build(repaired: bool) -> Parts:
    model, optimizer = fresh()
    cloud, kind = clouds(256)
    parts = Parts(model, optimizer, list(zip(cloud.split(8), kind.split(8))), loss_of, valid=[clouds(256)])
    parts.schedule = Falling(optimizer, RATE)
    for _ in range(8): epoch(parts)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    parts.model, parts.optimizer = fresh()
    parts.model.load_state_dict(saved[0])
    if not repaired: parts.optimizer.load_state_dict(saved[1])
    parts.schedule = Falling(parts.optimizer, RATE)
    parts.schedule.epoch = 8
    if repaired: parts.optimizer.load_state_dict(saved[1])
    return parts


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4): epoch(parts, record)
    parts.model.eval()
    cloud, kind = parts.valid[0]
    with torch.no_grad(): return parts.loss(parts.model(cloud), kind).item()/math.log(3)
