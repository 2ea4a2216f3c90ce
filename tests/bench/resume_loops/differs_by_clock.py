"The order of the data is shuffled with the time as the seed, anew in each epoch."
import random
import time

import torch
from torch import nn

from tests.bench.resume_loops import ORDER, but

WARM, STEPS, DIFFERS = 6, 6, True
STATES = {"net": ("net",), "adam": ("adam",), "order": ORDER, "at": ("at", *ORDER)}


def make():
    net = nn.Linear(6, 3)
    x = torch.randn(40, 6, generator=torch.Generator().manual_seed(2))
    return {"net": net, "adam": torch.optim.Adam(net.parameters(), 1e-2), "x": x, "y": x[:, ::2].argmax(1),
            "order": [*range(40)], "at": 40}


def step(run):
    if run["at"] == 40:
        random.Random(time.time_ns()).shuffle(run["order"])
        run["at"] = 0
    rows = run["order"][run["at"]:run["at"] + 10]
    run["at"] += 10
    loss = nn.functional.cross_entropy(run["net"](run["x"][rows]), run["y"][rows])
    run["adam"].zero_grad()
    loss.backward()
    run["adam"].step()
    return loss.item()


def save(run, without=()):
    return but({"net": run["net"].state_dict(), "adam": run["adam"].state_dict(), "order": [*run["order"]],
                "at": run["at"]}, without)


def load(run, saved):
    for name in ("net", "adam"):
        if name in saved: run[name].load_state_dict(saved[name])
    for name in ("order", "at"): run[name] = saved.get(name, run[name])
    return run
