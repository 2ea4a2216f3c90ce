"Hard examples are kept in the default of an argument, which all runs share."
import torch
from torch import nn

from tests.bench.resume_loops import but

WARM, STEPS, DIFFERS = 6, 5, True
STATES = {"model": ("model",), "sgd": ("sgd",), "rows_done": ("rows_done",)}


def with_hard(x, y, errors, hard=[]):  # noqa: B006 - that is what is wrong with this loop
    "The batch together with the hardest examples so far."
    if errors is not None: hard.append((errors.max().item(), x[errors.argmax()], y[errors.argmax()]))
    hard.sort(key=lambda one: -one[0])
    kept = hard[:4]
    if not kept: return x, y
    return torch.cat([x, torch.stack([a for _, a, _ in kept])]), torch.cat([y, torch.stack([b for *_, b in kept])])


class Run:
    def __init__(self):
        torch.manual_seed(6)
        self.x = torch.randn(32, 3)
        self.y = self.x.abs().sum(1)
        self.model = nn.Sequential(nn.Linear(3, 10), nn.ReLU(), nn.Linear(10, 1))
        self.sgd = torch.optim.SGD(self.model.parameters(), .03)
        self.rows_done = 0

    def errors(self, x, y): return (self.model(x)[:, 0] - y).square()


def make(): return Run()


def step(run):
    rows = slice(run.rows_done % 32, run.rows_done % 32 + 8)
    x, y = run.x[rows], run.y[rows]
    x, y = with_hard(x, y, run.errors(x, y).detach())
    loss = run.errors(x, y).mean()
    run.sgd.zero_grad()
    loss.backward()
    run.sgd.step()
    run.rows_done += 8
    return loss.item()


def save(run, without=()):
    return but({"model": run.model.state_dict(), "sgd": run.sgd.state_dict(), "rows_done": run.rows_done}, without)


def load(run, saved):
    for name in ("model", "sgd"):
        if name in saved: getattr(run, name).load_state_dict(saved[name])
    run.rows_done = saved.get("rows_done", 0)
