"Counters of many kinds: a number, a tensor, a number of numpy, an endless count, counts by class, a deque, a set."
import itertools
from collections import Counter, deque

import numpy as np
import torch
from torch import nn

from tests.bench.resume_loops import ORDER, but

WARM, STEPS = 7, 5
STATES = {"model": ("model",), "sgd": ("sgd",), "step": ("step", *ORDER), "tokens": ("tokens",),
          "examples": ("examples",), "ids": ("ids",), "by_class": ("by_class",), "window": ("window",), "met": ("met",)}
SILENT = {"sgd"}  # without momentum, it has no state


class Counts:
    def __init__(self):
        self.step, self.tokens, self.examples = 0, torch.zeros((), dtype=torch.long), np.int64(0)
        self.ids, self.by_class, self.window, self.met = itertools.count(), Counter(), deque(maxlen=9), set()


class Fit:
    def __init__(self):
        made = torch.Generator().manual_seed(101)
        self.x = torch.randn(30, 4, generator=made)
        self.y = self.x[:, :3].argmax(1)
        self.model = nn.Linear(4, 3)
        self.sgd = torch.optim.SGD(self.model.parameters(), lr=.2)
        self.counts = Counts()


def make(): return Fit()


def step(fit):
    c = fit.counts
    rows = [(c.step*5 + i) % 30 for i in range(5)]
    y = fit.y[rows]
    c.by_class.update(y.tolist())
    weights = torch.tensor([1/(1 + c.by_class[k]) for k in range(3)])
    loss = nn.functional.cross_entropy(fit.model(fit.x[rows]), y, weight=weights)
    loss.backward()
    c.window.append(loss.item())
    scale = 1 if loss.item() <= np.mean(c.window) else .5
    for p in fit.model.parameters(): p.grad.mul_(scale)
    fit.sgd.step()
    fit.sgd.zero_grad()
    c.step += 1
    c.tokens += 4*len(rows)
    c.examples += np.int64(len(rows))
    c.met.update((next(c.ids), row) for row in rows)
    return loss.item()


def save(fit, without=()):
    c = fit.counts
    ids = int(repr(c.ids)[len("count("):-1])  # asking for the next would be a step
    return but({"model": fit.model.state_dict(), "sgd": fit.sgd.state_dict(), "step": c.step, "ids": ids,
                "tokens": c.tokens.clone(), "examples": c.examples, "by_class": Counter(c.by_class),
                "window": deque(c.window, c.window.maxlen), "met": {*c.met}}, without)


def load(fit, saved):
    if "model" in saved: fit.model.load_state_dict(saved["model"])
    if "sgd" in saved: fit.sgd.load_state_dict(saved["sgd"])
    for name in ("step", "tokens", "examples", "by_class", "window", "met"):
        if name in saved: setattr(fit.counts, name, saved[name])
    fit.counts.ids = itertools.count(saved.get("ids", 0))
