"Each batch is mixed by a new generator of numpy without a seed, which asks the operating system for one."
import numpy as np
import torch
from torch import nn

from tests.bench.resume_loops import but

WARM, STEPS, DIFFERS = 5, 5, True
STATES = {"model": ("model",), "opt": ("opt",), "n": ("n",)}


def mixed(x, y):
    rng = np.random.default_rng()
    share, order = float(rng.beta(.4, .4)), torch.from_numpy(rng.permutation(len(x)))
    return share*x + (1 - share)*x[order], share*y + (1 - share)*y[order]


def make():
    x = torch.randn(24, 5, generator=torch.Generator().manual_seed(7))
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    return {"model": model, "opt": torch.optim.Adam(model.parameters(), 1e-2), "n": 0, "x": x,
            "y": nn.functional.one_hot(x[:, :3].argmax(1), 3).float()}


def step(run):
    x, y = mixed(run["x"], run["y"])
    loss = nn.functional.cross_entropy(run["model"](x), y)
    run["opt"].zero_grad()
    loss.backward()
    run["opt"].step()
    run["n"] += len(x)
    return loss.item()


def save(run, without=()):
    return but({"model": run["model"].state_dict(), "opt": run["opt"].state_dict(), "n": run["n"]}, without)


def load(run, saved):
    for name in ("model", "opt"):
        if name in saved: run[name].load_state_dict(saved[name])
    run["n"] = saved.get("n", 0)
