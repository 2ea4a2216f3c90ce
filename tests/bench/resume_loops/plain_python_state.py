"Modules that keep a count, a mean and a list as plain attributes, which no state dict has."
import torch
from torch import nn

from tests.bench.resume_loops import but

WARM, STEPS = 8, 6
STATES = {"model": ("model",), "optimizer": ("optimizer",), "calls": ("calls",), "mean": ("mean",),
          "dropped": ("dropped",), "seen": ("seen",)}


class Centered(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.mean = 0, 0.

    def forward(self, x):
        self.calls += 1
        self.mean += (x.mean().item() - self.mean)/self.calls
        return x - self.mean


class RoundRobin(nn.Module):
    "Drops one feature after the other, and remembers the last three."
    def __init__(self, width):
        super().__init__()
        self.width, self.dropped = width, [0]

    def forward(self, x):
        self.dropped = [*self.dropped, (self.dropped[-1] + 3) % self.width][-3:]
        kept = torch.ones(self.width)
        kept[self.dropped] = 0
        return x*kept


class Fit:
    def __init__(self):
        self.x = torch.rand(40, 5, generator=torch.Generator().manual_seed(23))
        self.model = nn.Sequential(nn.Linear(5, 9), nn.ReLU(), Centered(), RoundRobin(9), nn.Linear(9, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), .1, momentum=.8)
        self.seen = {"samples": 0}


def make(): return Fit()


def step(run):
    loss = (run.model(run.x)[:, 0] - run.x.amax(1)).square().mean()
    run.optimizer.zero_grad()
    loss.backward()
    run.optimizer.step()
    run.seen["samples"] += len(run.x)
    return loss.item()


def save(run, without=()):
    return but({"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict(), "seen": run.seen["samples"],
                "calls": run.model[2].calls, "mean": run.model[2].mean, "dropped": run.model[3].dropped}, without)


def load(run, saved):
    if "model" in saved: run.model.load_state_dict(saved["model"])
    if "optimizer" in saved: run.optimizer.load_state_dict(saved["optimizer"])
    run.seen["samples"] = saved.get("seen", 0)
    for layer, names in (run.model[2], ("calls", "mean")), (run.model[3], ("dropped",)):
        for name in names: setattr(layer, name, saved.get(name, getattr(layer, name)))
