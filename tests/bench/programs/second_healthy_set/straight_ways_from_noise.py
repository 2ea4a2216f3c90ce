"""A net learns the speed with which noise has to move in a straight line to become points of two moons.

Habits of the source: noise and points of a batch are paired so that the ways are short in all; the target is the
difference of the two, the place is drawn anew between them in each step; the loss can not reach zero, as many ways
cross; batches come from a loader without end; the rate is warmed up; gradients are clipped; samples are drawn with a
running average of the weights, by a hundred small steps.
Error: distance of drawn points from points held back, between sorted projections, over that of noise: .3; untrained
and noise 1."""
import copy

import torch
from scipy.optimize import linear_sum_assignment
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.bench.programs import Parts

SOURCE, YEAR = "atong01/conditional-flow-matching examples/images/cifar10/train_cifar10.py", 2023
STEPS, WARMUP = 500, 50


class Speed(nn.Module):
    def __init__(self, size=64):
        super().__init__()
        layers = [nn.Linear(3, size), nn.SELU()]
        for _ in range(2): layers += [nn.Linear(size, size), nn.SELU()]
        self.net = nn.Sequential(*layers, nn.Linear(size, 2))

    def forward(self, time, x): return self.net(torch.cat([x, time[:, None]], 1))


def moons(n):
    turn, which = torch.pi*torch.rand(n), torch.randint(2, (n,))
    x = torch.stack([turn.cos() + which - .5, (1 - 2*which)*turn.sin() + .5*which - .25], 1)
    return 2*(x + .05*torch.randn(n, 2))


def without_end(loader):
    while True: yield from loader


def flow_loss(model, x):
    noise = torch.randn_like(x)
    from_noise, to_point = linear_sum_assignment(torch.cdist(noise, x)**2)
    noise, x = noise[from_noise], x[to_point]
    time = torch.rand(len(x))
    place = (1 - time[:, None])*noise + time[:, None]*x
    return F.mse_loss(model(time, place), x - noise)


def build(repaired: bool) -> Parts:
    model = Speed()
    data, valid = [DataLoader(moons(n), 128, shuffle=True, drop_last=True) for n in (2560, 512)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3), data, call=flow_loss, valid=valid)


def distance(a, b):
    ways = F.normalize(torch.randn(2, 32, generator=torch.Generator().manual_seed(0)), dim=0)
    return ((a @ ways).sort(0).values - (b @ ways).sort(0).values).abs().mean()


@torch.no_grad()
def drawn(model, x, steps=100):
    for i in range(steps): x = x + model(torch.full((len(x),), i/steps), x)/steps
    return x


def train(parts: Parts, record) -> float:
    model, optimizer, average = parts.model, parts.optimizer, copy.deepcopy(parts.model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step, WARMUP)/WARMUP)
    batches = without_end(parts.data)
    with record.on(model, optimizer):
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = parts.call(model, next(batches))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1)
            optimizer.step()
            schedule.step()
            with torch.no_grad():
                for mine, its in zip(average.parameters(), model.parameters()): mine.lerp_(its, .02)
            record.step(loss)
    points, noise = parts.valid.dataset, torch.randn(512, 2)
    return (distance(drawn(average, noise), points)/distance(noise, points)).item()
