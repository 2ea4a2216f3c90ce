"A regression whose targets are standardized by running statistics that the loss keeps, one of them a plain float."
import torch
from torch import nn

from tests.bench.resume_loops import ORDER, but

WARM, STEPS = 7, 5
STATES = {"model": ("model",), "optimizer": ("optimizer",), "loss": ("mean", "variance"),
          "outliers": ("outliers",), "threshold": ("threshold",), "t": ("t", *ORDER)}
CONSEQUENCES = {"threshold": ("outliers",)}


class Standardized(nn.Module):
    "Leaves out targets that are further away than a threshold, which follows the errors."
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("variance", torch.ones(()))
        self.threshold, self.outliers = 3., 0

    def forward(self, output, target):
        with torch.no_grad():
            self.mean.lerp_(target.mean(), .2)
            self.variance.lerp_(target.var(), .2)
        error = (output - (target - self.mean)/self.variance.sqrt()).abs()
        kept = error.detach() < self.threshold
        self.outliers += int((~kept).sum())
        self.threshold = .9*self.threshold + .1*2*error.median().item()
        return (error*kept).mean()


class Run:
    def __init__(self):
        made = torch.Generator().manual_seed(61)
        self.x = torch.randn(48, 3, generator=made)
        self.y = 100 + 20*self.x.exp().sum(1)
        self.model, self.loss_fn = nn.Sequential(nn.Linear(3, 10), nn.ReLU(), nn.Linear(10, 1)), Standardized()
        self.optimizer = torch.optim.Rprop(self.model.parameters(), 1e-3)
        self.t = 0


def make(): return Run()


def step(run):
    rows = slice(run.t % 4*12, run.t % 4*12 + 12)
    loss = run.loss_fn(run.model(run.x[rows])[:, 0], run.y[rows])
    run.optimizer.zero_grad()
    loss.backward()
    run.optimizer.step()
    run.t += 1
    return loss.item()


def save(run, without=()):
    return but({"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict(), "t": run.t,
                "loss": run.loss_fn.state_dict(), "threshold": run.loss_fn.threshold,
                "outliers": run.loss_fn.outliers}, without)


def load(run, saved):
    for name, part in (("model", run.model), ("optimizer", run.optimizer), ("loss", run.loss_fn)):
        if name in saved: part.load_state_dict(saved[name])
    run.loss_fn.threshold, run.loss_fn.outliers = saved.get("threshold", 3.), saved.get("outliers", 0)
    run.t = saved.get("t", 0)
