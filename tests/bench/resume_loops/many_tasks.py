"Three tasks with data sets of different lengths; a task is drawn in each step, its loader begins anew when it ends."
import random

import torch
from torch import nn

from tests.bench.resume_loops import ORDER, but

WARM, STEPS = 11, 8
STATES = {"trunk": ("trunk",), "heads": ("heads",), "optimizers": ("optimizers",), "positions": ("positions", *ORDER),
          "draw": ("draw", "random", *ORDER), "counts": ("counts",)}
CONSEQUENCES = {"draw": ("counts",)}
LENGTHS = {"sum": 3, "sign": 2, "order": 5}


def batches(task):
    made = torch.Generator().manual_seed(len(task)*LENGTHS[task])
    x = torch.randn(LENGTHS[task], 8, 3, generator=made)
    y = {"sum": x.sum(2), "sign": x[..., 0].sign(), "order": x.argmax(2).float()}[task]
    return [*zip(x, y)]


class Tasks:
    def __init__(self):
        self.trunk = nn.Sequential(nn.Linear(3, 10), nn.ReLU())
        self.heads = nn.ModuleDict({task: nn.Linear(10, 1) for task in LENGTHS})
        self.optimizers = {task: torch.optim.Adam([*self.trunk.parameters(), *head.parameters()], 5e-3)
                           for task, head in self.heads.items()}
        self.loaders = {task: batches(task) for task in LENGTHS}
        self.positions = dict.fromkeys(LENGTHS, 0)
        self.counts = dict.fromkeys(LENGTHS, 1)
        self.draw = random.Random(6)

    def fit(self):
        "Tasks that were rare are drawn more often."
        (task,) = self.draw.choices([*LENGTHS], [1/self.counts[task] for task in LENGTHS])
        x, y = self.loaders[task][self.positions[task]]
        self.positions[task] = (self.positions[task] + 1) % LENGTHS[task]
        self.counts[task] += 1
        loss = nn.functional.mse_loss(self.heads[task](self.trunk(x))[:, 0], y)
        self.optimizers[task].zero_grad()
        loss.backward()
        self.optimizers[task].step()
        return loss.item()


def make(): return Tasks()
def step(run): return run.fit()


def save(run, without=()):
    return but({"trunk": run.trunk.state_dict(), "heads": run.heads.state_dict(),
                "optimizers": {task: optimizer.state_dict() for task, optimizer in run.optimizers.items()},
                "positions": {**run.positions}, "counts": {**run.counts}, "draw": run.draw.getstate()}, without)


def load(run, saved):
    if "trunk" in saved: run.trunk.load_state_dict(saved["trunk"])
    if "heads" in saved: run.heads.load_state_dict(saved["heads"])
    for task, state in saved.get("optimizers", {}).items(): run.optimizers[task].load_state_dict(state)
    run.positions.update(saved.get("positions", {}))
    run.counts.update(saved.get("counts", {}))
    if "draw" in saved: run.draw.setstate(saved["draw"])
