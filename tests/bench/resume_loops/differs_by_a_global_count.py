"A count of the module goes on from run to run, and the learning rate falls with it."
import torch
from torch import nn

from tests.bench.resume_loops import but

WARM, STEPS, DIFFERS = 5, 5, True
STATES = {"model": ("model",), "momentum": ("momentum", "optimizer")}
calls = 0


class Run:
    def __init__(self):
        torch.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(3, 7), nn.ReLU(), nn.Linear(7, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), .1, momentum=.9)
        self.x = torch.randn(16, 3)


def make(): return Run()


def rate():
    global calls
    calls += 1
    return .1*.98**calls


def step(run):
    for group in run.optimizer.param_groups: group["lr"] = rate()
    loss = nn.functional.mse_loss(run.model(run.x), run.x.norm(dim=1, keepdim=True))
    run.optimizer.zero_grad()
    loss.backward()
    run.optimizer.step()
    return loss.item()


def save(run, without=()):
    return but({"model": run.model.state_dict(), "momentum": run.optimizer.state_dict()}, without)


def load(run, saved):
    if "model" in saved: run.model.load_state_dict(saved["model"])
    if "momentum" in saved: run.optimizer.load_state_dict(saved["momentum"])
    return run
