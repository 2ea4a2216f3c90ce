"Noise whose seed comes from the operating system in each step."
import os

import torch
from torch import nn

from tests.bench.resume_loops import ORDER, but

WARM, STEPS, DIFFERS = 5, 5, True
STATES = {"model": ("model",), "optimizer": ("optimizer",), "i": ("i", *ORDER)}


class Private:
    "Gradients with noise that nobody can guess."
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), .1, momentum=.9)
        self.x = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))
        self.y = (self.x.sum(1) > 0).long()
        self.i = 0

    def step(self):
        secret = torch.Generator().manual_seed(int.from_bytes(os.urandom(4), "big"))
        rows = slice(self.i % 4*5, self.i % 4*5 + 5)
        loss = nn.functional.cross_entropy(self.model(self.x[rows]), self.y[rows])
        self.optimizer.zero_grad()
        loss.backward()
        for p in self.model.parameters(): p.grad.add_(.1*torch.randn(p.shape, generator=secret))
        self.optimizer.step()
        self.i += 1
        return loss.item()


def make(): return Private()
def step(run): return run.step()


def save(run, without=()):
    return but({"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict(), "i": run.i}, without)


def load(run, saved):
    for name in ("model", "optimizer"):
        if name in saved: getattr(run, name).load_state_dict(saved[name])
    run.i = saved.get("i", 0)
