"The learning rate falls with the seconds since the run began, as in a race for the best loss in an hour."
import time

import torch
from torch import nn

from tests.bench.resume_loops import but

WARM, STEPS, DIFFERS = 5, 5, True
STATES = {"model": ("model",), "adam": ("adam",), "spent": ("spent",)}
BUDGET = 30.


class Race:
    def __init__(self):
        torch.manual_seed(4)
        self.x = torch.rand(30, 3)
        self.model = nn.Sequential(nn.Linear(3, 9), nn.GELU(), nn.Linear(9, 1))
        self.adam = torch.optim.Adam(self.model.parameters(), 1e-2)
        self.spent, self.began = 0., time.perf_counter()

    @property
    def seconds(self): return self.spent + time.perf_counter() - self.began

    def step(self):
        self.adam.param_groups[0]["lr"] = 1e-2*max(0., 1 - self.seconds/BUDGET)
        loss = nn.functional.mse_loss(self.model(self.x), self.x.prod(1, keepdim=True))
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        return loss.item()


def make(): return Race()
def step(run): return run.step()


def save(run, without=()):
    return but({"model": run.model.state_dict(), "adam": run.adam.state_dict(), "spent": run.seconds}, without)


def load(run, saved):
    if "model" in saved: run.model.load_state_dict(saved["model"])
    if "adam" in saved: run.adam.load_state_dict(saved["adam"])
    run.spent, run.began = saved.get("spent", 0.), time.perf_counter()
    return run
