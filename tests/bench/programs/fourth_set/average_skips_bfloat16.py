"""The average of a model follows parameters of two types only, and those of this model are in bfloat16.

The report is a change to a library for averages of weights: its lists of names hold what is in float32 or float16, so
the copy of a model in bfloat16 stays as it was. Its author found it hard to track down; the maintainer asked for a
general test of the type."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "lucidrains/ema-pytorch#18", 2024
AREA, CAUSE = "precision", "target network"
TRUE = set()
PLACE = ()


class Average(nn.Module):
    "A copy that follows its model slowly."
    def __init__(self, model, repaired: bool, decay: float = .9, every: int = 2):
        super().__init__()
        self.online = [model]
        self.copy = copy.deepcopy(model).requires_grad_(False)
        self.decay, self.every, self.time = decay, every, 0
        kinds = (torch.float32, torch.float16, torch.bfloat16) if repaired else (torch.float32, torch.float16)
        self.names = {name for name, p in model.named_parameters() if p.dtype in kinds}

    @torch.no_grad()
    def update(self):
        self.time += 1
        if self.time % self.every: return
        new = dict(self.online[0].named_parameters())
        for name, old in self.copy.named_parameters():
            if name in self.names: old.copy_(old.float().lerp(new[name].float(), 1 - self.decay))

    def forward(self, *args): return self.copy(*args)


class Denoiser(nn.Module):
    "The noise in a curve of 16 numbers."
    def __init__(self, size: int):
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(17, size), nn.Linear(size, size), nn.Linear(size, 16)

    def forward(self, noisy, level):
        x = F.silu(self.first(torch.cat([noisy, level], 1)))
        return self.last(F.silu(self.middle(x)))


def curves(n: int):
    "Noisy waves, how strong the noise is, and the noise."
    start, fast = 2*torch.pi*torch.rand(n, 1), .3 + .5*torch.rand(n, 1)
    noise, level = torch.randn(n, 16), torch.rand(n, 1)
    clean = 1.4*(start + fast*torch.arange(16)).sin()
    return [part.bfloat16() for part in ((1 - level**2).sqrt()*clean + level*noise, level, noise)]


def build(repaired: bool) -> Parts:
    model = Denoiser(64).bfloat16()

    def call(model, batch): return F.mse_loss(model(*batch[:2]).float(), batch[2].float())

    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3), [curves(128) for _ in range(300)], call=call,
                 valid=[curves(512)], repaired=repaired)


def train(parts: Parts, record) -> float:
    average = Average(parts.model, parts.repaired)
    with record.on(parts.model, parts.optimizer):
        for batch in parts.data:
            loss = parts.call(parts.model, batch)
            loss.backward()
            parts.optimizer.step()
            parts.optimizer.zero_grad()
            average.update()
            record.step(loss)
    with torch.no_grad(): return parts.call(average, parts.valid[0]).item()
