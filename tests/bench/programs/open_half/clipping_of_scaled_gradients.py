"""Gradients are clipped right after the backward pass, while they are still multiplied by the scaler's factor.

The report: a large model trained in float16 with a library converges very slowly. The author found the order of the
calls: clipping first, then `unscale_`. A maintainer agreed, and a release mended it."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "Lightning-AI/pytorch-lightning#9599", 2021
AREA, CAUSE = "precision", "clipping before unscaling"
TRUE = {"loss does not fall", "clipping too tight", "learning rate too small"}
PLACE = ()


class Classifier(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(20, size), nn.ReLU(), nn.Linear(size, size), nn.ReLU(),
                                    nn.Linear(size, size), nn.ReLU(), nn.Linear(size, 4))

    def forward(self, x): return self.layers(x)


def samples(n: int, centres: torch.Tensor):
    part = torch.randint(0, len(centres), (n,))
    return centres[part] + torch.randn(n, 20), part % 4


def build(repaired: bool) -> Parts:
    model = Classifier(64)
    centres = torch.randn(12, 20)
    x, label = samples(2048, centres)
    data = [(x[i:i + 64], label[i:i + 64]) for i in range(0, 2048, 64)]

    def call(model, batch):
        with torch.autocast("cpu", torch.float16): output = model(batch[0])
        return F.cross_entropy(output.float(), batch[1])

    return Parts(model, torch.optim.SGD(model.parameters(), lr=.1, momentum=.9), data, call=call,
                 valid=[samples(1024, centres)], scaler=torch.amp.GradScaler("cpu"), repaired=repaired)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer, scaler=parts.scaler):
        for _ in range(8):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.optimizer.zero_grad()
                parts.scaler.scale(loss).backward()
                if parts.repaired: parts.scaler.unscale_(parts.optimizer)
                nn.utils.clip_grad_norm_(parts.model.parameters(), 1.)
                parts.scaler.step(parts.optimizer)
                parts.scaler.update()
                record.step(loss)
    with torch.no_grad(): return parts.call(parts.model, parts.valid[0]).item()/math.log(4)
