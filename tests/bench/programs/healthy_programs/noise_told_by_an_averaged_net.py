"""A network tells the noise that was mixed into points, and new points are drawn with its running average.

Habits of the source: a time drawn for each example; sines of the time; the mean squared error of the noise; gradients
of two batches, each loss halved; the norm clipped at 1; the average copies the network for its first steps, then
follows by .98, every second step only; a linear schedule of noise; Adam with a second beta of .99; samples are clamped
on the way.
Score: how far drawn points are from held-back ones, along directions, by the distance of normal numbers. Below .5;
about 1 for the untrained network."""
import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "lucidrains/denoising-diffusion-pytorch denoising_diffusion_pytorch.py", 2020
TIMES, WIDE = 40, 64

betas = torch.linspace(1e-3, .2, TIMES)
kept = (1 - betas).cumprod(0)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.of_time = nn.Sequential(nn.Linear(16, WIDE), nn.GELU(), nn.Linear(WIDE, WIDE))
        self.first, self.second, self.last = nn.Linear(2, WIDE), nn.Linear(WIDE, WIDE), nn.Linear(WIDE, 2)
        self.norm = nn.LayerNorm(WIDE)

    def forward(self, x, time):
        turns = time[:, None]*torch.exp(torch.arange(8)*-math.log(10000)/7)
        when = self.of_time(torch.cat([turns.sin(), turns.cos()], 1))
        h = F.silu(self.first(x) + when)
        return self.last(h + F.silu(self.second(self.norm(h) + when)))


def points(n: int):
    "On one of eight spots around a ring."
    turn = torch.randint(8, (n,))*math.pi/4
    return torch.stack([turn.cos(), turn.sin()], 1) + .06*torch.randn(n, 2)


def call(model, x):
    time, noise = torch.randint(TIMES, (len(x),)), torch.randn_like(x)
    part = kept[time, None]
    return F.mse_loss(model(part.sqrt()*x + (1 - part).sqrt()*noise, time), noise)


@torch.no_grad()
def drawn(model, n: int):
    x = torch.randn(n, 2)
    for time in reversed(range(TIMES)):
        noise = model(x, torch.full((n,), time))
        clean = ((x - (1 - kept[time]).sqrt()*noise)/kept[time].sqrt()).clamp(-1.5, 1.5)
        before = kept[time - 1] if time else torch.tensor(1.)
        mean = (before.sqrt()*betas[time]*clean + (1 - betas[time]).sqrt()*(1 - before)*x)/(1 - kept[time])
        x = mean + (betas[time]*(1 - before)/(1 - kept[time])).sqrt()*torch.randn_like(x)
    return x


def distance(made, real):
    turns = torch.arange(16)*math.pi/16
    ways = torch.stack([turns.cos(), turns.sin()])
    return ((made @ ways).sort(0).values - (real @ ways).sort(0).values).abs().mean().item()


def build(repaired: bool) -> Parts:
    model = Denoiser()
    loader = torch.utils.data.DataLoader(points(2048), batch_size=128, shuffle=True)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3, betas=(.9, .99)), loader, call=call,
                 valid=[points(1024)])


def train(parts: Parts, record) -> float:
    model, optimizer, steps = parts.model, parts.optimizer, 0
    average = copy.deepcopy(model).requires_grad_(False)
    with record.on(model, optimizer):
        for _ in range(60):
            batches = iter(parts.data)
            for pair in zip(batches, batches):
                for x in pair:
                    loss = parts.call(model, x)/2
                    loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.)
                optimizer.step()
                optimizer.zero_grad()
                record.step(loss*2)
                steps += 1
                if steps % 2 == 0:
                    share = 1. if steps < 50 else .02
                    for mine, its in zip(average.parameters(), model.parameters()): mine.data.lerp_(its.data, share)
    real = parts.valid[0]
    return distance(drawn(average.eval(), 1024), real)/distance(torch.randn(1024, 2), real)
