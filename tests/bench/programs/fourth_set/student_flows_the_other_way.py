"""The teacher flows from noise to data, and the student that learns from it is told to flow from data to noise.

The report: in a method that makes samples in one step, the noisy picture of the teacher is pure noise at time zero, and
that of its student at time one, so that their velocities have opposite signs. The author agreed that lines were copied
from another project, and mended it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "primepake/splitmeanflow#2", 2025
AREA, CAUSE = "loss and task", "wrong sign"
TRUE = {"outputs blow up", "loss rises", "gradients explode"}
PLACE = ()


class Velocity(nn.Module):
    "The mean velocity of points between two times."
    def __init__(self, size: int):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, size), nn.SiLU(), nn.Linear(size, size), nn.SiLU(), nn.Linear(size, 2))

    def forward(self, points, begin, end): return self.net(torch.cat([points, begin, end], 1))


def shapes(n: int):
    "Three clouds at the corners of a triangle."
    corner = torch.tensor([[1.5, -1], [-1.5, -1], [0, 1.6]])[torch.randint(0, 3, (n,))]
    return corner + .15*torch.randn(n, 2)


def trained_teacher(size: int):
    "Noise at time zero, data at time one."
    teacher = Velocity(size)
    optimizer = torch.optim.Adam(teacher.parameters(), lr=3e-3)
    for _ in range(300):
        data, noise, time = shapes(128), torch.randn(128, 2), torch.rand(128, 1)
        loss = F.mse_loss(teacher((1 - time)*noise + time*data, time, time), data - noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return teacher.requires_grad_(False)


class SplitMean(nn.Module):
    "The velocity over a span is the mean of those over its parts, and over no span that of the teacher."
    def __init__(self, teacher, repaired: bool):
        super().__init__()
        self.teacher, self.repaired = teacher, repaired

    def forward(self, student, data):
        noise, begin, end = torch.randn_like(data), *torch.rand(2, len(data), 1).sort(0).values
        between = torch.rand_like(begin)*(end - begin) + begin
        if self.repaired:
            points = (1 - begin)*noise + begin*data
            with torch.no_grad():
                first = student(points, begin, between)
                second = student(points + (between - begin)*first, between, end)
        else:
            points = (1 - end)*data + end*noise
            with torch.no_grad():
                second = student(points, between, end)
                first = student(points - (end - between)*second, begin, between)
        aim = ((between - begin)*first + (end - between)*second)/(end - begin + 1e-6)
        at = begin if self.repaired else end
        mean, now, taught = student(points, begin, end), student(points, at, at), self.teacher(points, at, at)
        return F.mse_loss(mean, aim) + F.mse_loss(now, taught)


def build(repaired: bool) -> Parts:
    teacher, student = trained_teacher(64), Velocity(64)
    student.load_state_dict(teacher.state_dict())
    return Parts(student, torch.optim.AdamW(student.parameters(), lr=1e-3), [shapes(256) for _ in range(600)],
                 call=SplitMean(teacher, repaired), valid=[shapes(512)], repaired=repaired)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for data in parts.data:
            parts.optimizer.zero_grad()
            loss = parts.call(parts.model, data)
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    noise, zero, one = torch.randn(512, 2), torch.zeros(512, 1), torch.ones(512, 1)
    with torch.no_grad(): made = noise + parts.model(noise, zero, one)*(1 if parts.repaired else -1)
    real, other, far = parts.valid[0], shapes(512), lambda a, b: torch.cdist(a, b).mean()
    return ((2*far(made, real) - far(made, made) - far(real, other))/far(real, other)).item()
