"LBFGS with a closure and a history of gradients, on double precision."
import torch
from torch import nn

from tests.bench.resume_loops import but

WARM, STEPS = 4, 4
STATES = {"field": ("field",), "lbfgs": ("lbfgs", "optimizer"), "points": ("points", "batches"), "rounds": ("rounds",)}


class Solver:
    "Fits u'' = -u with u(0) = 0 and u'(0) = 1; the points move a little in each round."
    def __init__(self):
        self.field = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)).double()
        self.lbfgs = torch.optim.LBFGS(self.field.parameters(), lr=.3, max_iter=3, history_size=5)
        self.points = torch.linspace(0, 2, 15, dtype=torch.double)[:, None]
        self.rounds = 0

    def residual(self):
        t = self.points.clone().requires_grad_()
        u = self.field(t)
        du, = torch.autograd.grad(u.sum(), t, create_graph=True)
        ddu, = torch.autograd.grad(du.sum(), t, create_graph=True)
        zero = torch.zeros(1, 1, dtype=torch.double, requires_grad=True)
        u0 = self.field(zero)
        du0, = torch.autograd.grad(u0.sum(), zero, create_graph=True)
        return (ddu + u).square().mean() + u0.square().sum() + (du0 - 1).square().sum()

    def round(self):
        def closure():
            self.lbfgs.zero_grad()
            loss = self.residual()
            loss.backward()
            return loss
        loss = self.lbfgs.step(closure)
        self.points = (self.points*1.01) % 2
        self.rounds += 1
        return loss


def make(): return Solver()
def step(run): return float(run.round().detach())


def save(run, without=()):
    return but({"field": run.field.state_dict(), "lbfgs": run.lbfgs.state_dict(), "points": run.points,
                "rounds": run.rounds}, without)


def load(run, saved):
    if "field" in saved: run.field.load_state_dict(saved["field"])
    if "lbfgs" in saved: run.lbfgs.load_state_dict(saved["lbfgs"])
    run.points, run.rounds = saved.get("points", run.points), saved.get("rounds", 0)
