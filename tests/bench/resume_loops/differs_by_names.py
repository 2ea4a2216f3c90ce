"Samples get unique names, and what their hashes say decides which of them are held back."
import hashlib
import uuid

import torch
from torch import nn

from tests.bench.resume_loops import but

WARM, STEPS, DIFFERS = 5, 5, True
STATES = {"model": ("model",), "optimizer": ("optimizer",), "epoch": ("epoch",)}


def held_back(name): return hashlib.sha1(name.encode()).digest()[0] < 64


class Catalog:
    def __init__(self):
        rows = torch.randn(40, 4, generator=torch.Generator().manual_seed(30))
        self.named = {uuid.uuid4().hex: row for row in rows}
        self.rows = torch.stack([row for name, row in self.named.items() if not held_back(name)])


class Run:
    def __init__(self):
        self.catalog = Catalog()
        self.model = nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 4))
        self.optimizer = torch.optim.RMSprop(self.model.parameters(), 1e-2)
        self.epoch = 0


def make(): return Run()


def step(run):
    loss = nn.functional.mse_loss(run.model(run.catalog.rows), run.catalog.rows)
    run.optimizer.zero_grad()
    loss.backward()
    run.optimizer.step()
    run.epoch += 1
    return loss.item()


def save(run, without=()):
    return but({"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict(), "epoch": run.epoch}, without)


def load(run, saved):
    for name in ("model", "optimizer"):
        if name in saved: getattr(run, name).load_state_dict(saved[name])
    run.epoch = saved.get("epoch", 0)
