"""A teacher is the average of its student's weights, and the statistics of its batch norms stay behind.

The report: the average breaks the statistics of batch norm, the teacher's answers become useless after some epochs, and
the student is worse than without a teacher. With an average that handles them the author of the report got results
close to those published."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "hnuzhy/SSDA-YOLO#21", 2023
AREA, CAUSE = "loop", "batch norm"
TRUE = set()
PLACE = ()


def scenes(n: int, kinds, strange: bool):
    "One of six kinds; in the second domain some of what is seen is missing and all is a bit brighter."
    y = torch.randint(0, 6, (n,))
    x = 4 + 3*kinds[y] + 1.5*torch.randn(n, 16)
    if strange: x = 1.3*torch.where(torch.rand(n, 16) < .3, torch.full_like(x, 4.), x) + 1
    return x, y


def student_loss(model, batch, teacher=None):
    "The labels of the first domain, and in the second one what the teacher is sure of."
    x, y, other = batch
    loss = F.cross_entropy(model(x), y)
    if teacher is None: return loss
    with torch.no_grad(): sure, answer = teacher(other).softmax(1).max(1)
    harder = other + .5*torch.randn_like(other)
    return loss + (F.cross_entropy(model(harder), answer, reduction="none")*(sure > .7)).mean()


@torch.no_grad()
def follow(teacher, student, step: int, with_statistics: bool):
    keep = min(.95, step/(step + 1))
    for old, new in zip(teacher.parameters(), student.parameters()): old.lerp_(new, 1 - keep)
    if with_statistics:
        for old, new in zip(teacher.buffers(), student.buffers()): old.copy_(new)


def build(repaired: bool) -> Parts:
    model = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.BatchNorm1d(64),
                          nn.ReLU(), nn.Linear(64, 6))
    kinds = torch.randn(6, 16)
    (x, y), (other, _) = scenes(960, kinds, False), scenes(960, kinds, True)
    optimizer = torch.optim.SGD(model.parameters(), lr=.02, momentum=.9)
    data = list(zip(x.split(48), y.split(48), other.split(48)))
    return Parts(model, optimizer, data, call=student_loss, valid=[scenes(1024, kinds, True)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    teacher, step = copy.deepcopy(model).eval(), 0
    with record.on(model, optimizer):
        for epoch in range(15):
            for batch in parts.data:
                loss = student_loss(model, batch, teacher if epoch else None)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                follow(teacher, model, step, parts.repaired)
                step += 1
                record.step(loss)
    x, y = parts.valid[0]
    model.eval()
    with torch.no_grad(): return (model(x).argmax(1) != y).float().mean().item()/(5/6)
