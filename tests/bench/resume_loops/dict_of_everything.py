"One dict has the model, the optimizer, the data, the order and a history from which the learning rate is taken."
import random

import torch
from torch import nn

from tests.bench.resume_loops import but

WARM, STEPS = 9, 6
STATES = {"net": ("net",), "opt": ("opt",), "history": ("history",), "epoch": ("epoch",), "order": ("order",),
          "at": ("at", "position", "batches", "order"), "shuffler": ("shuffler", "order", "batches")}
CONSEQUENCES = {"order": ("batches", "loader")}


def make():
    made = torch.Generator().manual_seed(11)
    x = torch.randn(32, 4, generator=made)
    net = nn.Sequential(nn.Linear(4, 12), nn.GELU(), nn.Linear(12, 1))
    return {"net": net, "opt": torch.optim.RMSprop(net.parameters(), lr=3e-3, momentum=.8),
            "x": x, "y": x.prod(1, keepdim=True), "epoch": 0, "order": [*range(32)], "at": 0,
            "shuffler": random.Random(4), "history": []}


def step(run):
    rows = run["order"][run["at"]:run["at"] + 8]
    loss = nn.functional.mse_loss(run["net"](run["x"][rows]), run["y"][rows])
    loss.backward()
    recent = run["history"][-6:]
    if len(recent) == 6 and sum(recent[3:]) > sum(recent[:3]):
        for group in run["opt"].param_groups: group["lr"] *= .7
    run["opt"].step()
    run["opt"].zero_grad()
    run["history"].append(loss.item())
    run["at"] += 8
    if run["at"] >= 32:
        run["shuffler"].shuffle(run["order"])
        run["at"] = 0
        run["epoch"] += 1
    return loss


def save(run, without=()):
    saved = {name: run[name] for name in ("epoch", "at", "order", "history")}
    saved |= {name: run[name].state_dict() for name in ("net", "opt")}
    return but(saved | {"shuffler": run["shuffler"].getstate()}, without)


def load(run, saved):
    for name, value in saved.items():
        if name in ("net", "opt"): run[name].load_state_dict(value)
        elif name == "shuffler": run[name].setstate(value)
        else: run[name] = value
    return run
