"A list of indices from which batches are popped, and which is filled and shuffled again by numpy when it is empty."
import numpy as np
import torch
from torch import nn

from tests.bench.resume_loops import NUMPY_RANDOM, ORDER, but

WARM, STEPS = 6, 6
STATES = {"params": ("params", "weight", "bias", "layers"), "sgd": ("sgd",), "left": ("left", *ORDER),
          "numpy": (*NUMPY_RANDOM, "random", "rng"), "meter": ("meter", "total", "n")}
CONSEQUENCES = {"numpy": ORDER}


class Meter:
    def __init__(self): self.total, self.n = 0., 0

    def update(self, value):
        self.total += value
        self.n += 1


class Program:
    def __init__(self):
        made = np.random.default_rng(12)
        self.x = torch.tensor(made.uniform(-1, 1, (20, 3)), dtype=torch.float32)
        self.y = (self.x**2).sum(1).gt(1).float()
        self.layers = nn.ModuleList([nn.Linear(3, 9), nn.Linear(9, 9), nn.Linear(9, 1)])
        self.sgd = torch.optim.SGD(self.layers.parameters(), lr=.3, momentum=.9, dampening=.1)
        self.left, self.meter = [], Meter()

    def forward(self, x):
        for layer in self.layers[:-1]: x = layer(x).relu()
        return self.layers[-1](x)[:, 0]


def make(): return Program()


def step(run):
    if not run.left: run.left = np.random.permutation(20).tolist()
    rows = [run.left.pop() for _ in range(5)]
    loss = nn.functional.binary_cross_entropy_with_logits(run.forward(run.x[rows]), run.y[rows])
    run.sgd.zero_grad()
    loss.backward()
    run.sgd.step()
    run.meter.update(loss.item())
    return loss.item()


def save(run, without=()):
    return but({"params": run.layers.state_dict(), "sgd": run.sgd.state_dict(), "left": run.left,
                "numpy": np.random.get_state(), "meter": vars(run.meter)}, without)


def load(run, saved):
    if "params" in saved: run.layers.load_state_dict(saved["params"])
    if "sgd" in saved: run.sgd.load_state_dict(saved["sgd"])
    if "numpy" in saved: np.random.set_state(saved["numpy"])
    run.left = list(saved.get("left", ()))
    vars(run.meter).update(saved.get("meter", {}))
