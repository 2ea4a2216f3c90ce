"Early stopping keeps the best weights, and when it stops, goes back to them with a smaller learning rate."
import copy

import torch
from torch import nn

from tests.bench.resume_loops import ORDER, but

WARM, STEPS = 11, 8
STATES = {"model": ("model",), "opt": ("opt",), "best_state": ("best_state",), "best_loss": ("best_loss",),
          "patience": ("patience_left",), "restarts": ("restarts",), "i": ("i", *ORDER)}
CONSEQUENCES = {"best_loss": ("patience_left",)}


class EarlyStopping:
    def __init__(self, patience=3):
        self.patience = self.patience_left = patience
        self.best_loss, self.best_state, self.restarts = float("inf"), None, 0

    def __call__(self, loss, model):
        "Whether to stop."
        if loss < self.best_loss - 1e-3:
            self.best_loss, self.best_state = loss, copy.deepcopy(model.state_dict())
            self.patience_left = self.patience
        else: self.patience_left -= 1
        return self.patience_left == 0


class Run:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 2))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=2.)
        self.stopping, self.i = EarlyStopping(), 0
        self.x = torch.randn(50, 2, generator=torch.Generator().manual_seed(14))
        self.y = (self.x.prod(1) > 0).long()


def make(): return Run()


def step(run):
    rows = slice(run.i % 4*10, run.i % 4*10 + 10)
    loss = nn.functional.cross_entropy(run.model(run.x[rows]), run.y[rows])
    run.opt.zero_grad()
    loss.backward()
    run.opt.step()
    run.i += 1
    with torch.no_grad(): held_back = nn.functional.cross_entropy(run.model(run.x[40:]), run.y[40:]).item()
    if run.stopping(held_back, run.model):
        run.model.load_state_dict(run.stopping.best_state or run.model.state_dict())
        run.opt.param_groups[0]["lr"] *= .5
        run.stopping.patience_left = run.stopping.patience
        run.stopping.restarts += 1
    return loss.item()


def save(run, without=()):
    s = run.stopping
    return but({"model": run.model.state_dict(), "opt": run.opt.state_dict(), "best_state": s.best_state,
                "best_loss": s.best_loss, "patience": s.patience_left, "restarts": s.restarts, "i": run.i}, without)


def load(run, saved):
    if "model" in saved: run.model.load_state_dict(saved["model"])
    if "opt" in saved: run.opt.load_state_dict(saved["opt"])
    for name in ("best_state", "best_loss", "restarts"):
        if name in saved: setattr(run.stopping, name, saved[name])
    run.stopping.patience_left = saved.get("patience", run.stopping.patience)
    run.i = saved.get("i", 0)
