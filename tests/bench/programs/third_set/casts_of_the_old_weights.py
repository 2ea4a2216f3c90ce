"""One autocast is open around the whole loop, so each forward uses the cast of the first weights.

The report: trainers for diffusion models keep the parameters in float32 and open autocast once around all steps. What
it has cast it keeps until it is left, so steps of the optimizer do not show in the next forward, and the loss is flat.
The merged change opens it around each forward."""
import contextlib

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "X-GenGroup/Flow-Factory#186", 2026
AREA, CAUSE = "loop", "state goes on"
TRUE = {"loss does not fall"}
PLACE = ()


class Flow(nn.Module):
    "The direction from noise to a sample, from where it is, the time and what is asked for."
    def __init__(self, size: int):
        super().__init__()
        self.enter, self.asked = nn.Linear(6 + 5, size), nn.Embedding(4, size)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(size), nn.Linear(size, 2*size), nn.SiLU(),
                                                  nn.Linear(2*size, size)) for _ in range(2))
        self.leave = nn.Linear(size, 6)

    def forward(self, x, time, asked):
        waves = time.unsqueeze(1)*2.**torch.arange(2)
        x = self.enter(torch.cat([x, time.unsqueeze(1), waves.sin(), waves.cos()], 1)) + self.asked(asked)
        for block in self.blocks: x = x + block(x)
        return self.leave(x)


def samples(n: int, centers):
    asked, time, noise = torch.randint(0, 4, (n,)), torch.rand(n), torch.randn(n, 6)
    x = centers[asked] + .3*torch.randn(n, 6)
    t = time.unsqueeze(1)
    return ((1 - t)*noise + t*x, time, asked), x - noise


def direction(model, batch): return F.mse_loss(model(*batch[0]).float(), batch[1])


def mixed(): return torch.autocast("cpu", torch.bfloat16)


def each_in_its_own(model, batch):
    with mixed(): return direction(model, batch)


def build(repaired: bool) -> Parts:
    model, centers = Flow(48), 1.5*torch.randn(4, 6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    data, call = [samples(64, centers) for _ in range(250)], each_in_its_own if repaired else direction
    return Parts(model, optimizer, data, call=call, valid=[samples(1024, centers)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer), contextlib.nullcontext() if parts.repaired else mixed():
        for batch in parts.data:
            loss = parts.call(model, batch)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.)
            optimizer.step()
            optimizer.zero_grad()
            record.step(loss)
    with torch.no_grad(): return (direction(model, parts.valid[0])/parts.valid[0][1].var()).item()
