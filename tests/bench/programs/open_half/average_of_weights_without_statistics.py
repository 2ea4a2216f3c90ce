"""The averaged model that is used in the end follows the weights, and not the statistics of the batch norms.

The report: where all samples have labels, the statistics are not a part of the average's update and stay as they are
throughout training. A merged change mended it."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "FlyreelAI/sesemi#36", 2022
AREA, CAUSE = "parameters", "target network"
TRUE = set()
PLACE = ()

kinds = 5


def block(inside: int, outside: int):
    return [nn.Conv2d(inside, outside, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(outside), nn.LeakyReLU(.1)]


@torch.no_grad()
def follow(average, model, decay: float, repaired: bool):
    "One step of the average towards the model."
    for mine, weight in zip(average.parameters(), model.parameters()): mine.mul_(decay).add_(weight, alpha=1 - decay)
    if repaired:
        for mine, buffer in zip(average.buffers(), model.buffers()): mine.copy_(buffer)


def pictures(n: int, looks):
    "One of five textures, brighter than zero on the whole, somewhere in a picture."
    kind, at = torch.randint(0, kinds, (n,)), torch.randint(0, 10, (n, 2))
    x = torch.randn(n, 1, 16, 16) + 2
    for i in range(n): x[i, :, at[i, 0]:at[i, 0] + 6, at[i, 1]:at[i, 1] + 6] += 1.5*looks[kind[i]]
    return x, kind


def build(repaired: bool) -> Parts:
    looks = torch.randn(kinds, 6, 6)
    model = nn.Sequential(*block(1, 16), *block(16, 32), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(32, kinds))
    data = [pictures(32, looks) for _ in range(50)]
    optimizer = torch.optim.SGD(model.parameters(), lr=.05, momentum=.9, nesterov=True, weight_decay=5e-4)
    parts = Parts(model, optimizer, data, F.cross_entropy, valid=[pictures(500, looks)])
    parts.average, parts.repaired = copy.deepcopy(model).eval().requires_grad_(False), repaired
    return parts


def train(parts: Parts, record) -> float:
    plan = torch.optim.lr_scheduler.PolynomialLR(parts.optimizer, 300)
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            for x, kind in parts.data:
                loss = parts.loss(parts.model(x), kind)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                plan.step()
                follow(parts.average, parts.model, .98, parts.repaired)
                record.step(loss)
    x, kind = parts.valid[0]
    return (parts.loss(parts.average(x), kind)/torch.tensor(float(kinds)).log()).item()
