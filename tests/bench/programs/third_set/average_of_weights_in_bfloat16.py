"""The moving average of the weights is kept in bfloat16, where a step of a thousandth is rounded away.

The report is the merged change: with float16 or bfloat16 nearly all updates of the averaged weights are rounded to
nothing, so they stay as they were. Now the average is always kept in float32."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "d8ahazard/sd_dreambooth_extension#1417", 2023
AREA, CAUSE = "precision", "rounded"
TRUE = set()
PLACE = ()

steps = 20
kept = torch.cos(torch.linspace(.05, 1.5, steps))**2


class Denoiser(nn.Module):
    "The noise in a picture of one of four things."
    def __init__(self):
        super().__init__()
        self.time, self.thing = nn.Embedding(steps, 24), nn.Embedding(4, 24)
        self.layers = nn.Sequential(nn.Linear(56, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, 8))

    def forward(self, x, time, thing):
        return self.layers(torch.cat([x.to(self.time.weight.dtype), self.time(time), self.thing(thing)], 1))


def pictures(n: int, things: torch.Tensor):
    thing = torch.randint(4, (n,))
    return things[thing] + .1*torch.randn(n, 8), thing


def build(repaired: bool) -> Parts:
    model, things = Denoiser().bfloat16(), torch.randn(4, 8)
    averaged = copy.deepcopy(model).requires_grad_(False)
    if repaired: averaged.float()
    data = [pictures(64, things) for _ in range(60)]

    def call(model, batch):
        x, thing = batch
        time, noise = torch.randint(steps, (len(x),)), torch.randn_like(x)
        signal = kept[time, None]
        return F.mse_loss(model(signal.sqrt()*x + (1 - signal).sqrt()*noise, time, thing).float(), noise)

    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    parts = Parts(model, optimizer, data, call=call, valid=[pictures(2000, things)])
    parts.averaged = averaged
    return parts


def average(averaged, model, share: float = .998):
    with torch.no_grad():
        for mean, now in zip(averaged.parameters(), model.parameters()):
            mean.sub_((1 - share)*(mean - now.to(mean.dtype)))


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(14):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 1.)
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                average(parts.averaged, parts.model)
                record.step(loss)
    with torch.no_grad(): return parts.call(parts.averaged, parts.valid[0]).item()
