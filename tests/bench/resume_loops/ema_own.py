"An average of the weights by an own class, whose decay warms up with the number of updates."
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.resume_loops import ORDER, but

WARM, STEPS = 8, 6
STATES = {"model": ("model",), "optim": ("optim",), "ema": ("shadow",), "updates": ("updates", "num_updates"),
          "step": ("step", *ORDER)}
SILENT = {"optim"}  # plain gradient descent has no state, and its rate never changes


class EMA:
    def __init__(self, model, decay=.9):
        self.decay, self.num_updates = decay, 0
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}

    def update(self, model):
        self.num_updates += 1
        decay = min(self.decay, (1 + self.num_updates)/(10 + self.num_updates))
        for name, p in model.named_parameters(): self.shadow[name].lerp_(p.detach(), 1 - decay)


class Run:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 2))
        self.optim = torch.optim.SGD(self.model.parameters(), lr=.2)
        self.ema = EMA(self.model)
        self.step = 0
        self.x = torch.randn(36, 4, generator=torch.Generator().manual_seed(2))
        self.y = (self.x[:, 0] > self.x[:, 1]).long()


def make(): return Run()


def step(run):
    rows = [i % 36 for i in range(run.step*10, run.step*10 + 10)]
    loss = F.cross_entropy(run.model(run.x[rows]), run.y[rows])
    run.optim.zero_grad()
    loss.backward()
    run.optim.step()
    run.ema.update(run.model)
    run.step += 1
    return loss.item()


def save(run, without=()):
    return but({"model": run.model.state_dict(), "optim": run.optim.state_dict(), "ema": run.ema.shadow,
                "updates": run.ema.num_updates, "step": run.step}, without)


def load(run, saved):
    if "model" in saved: run.model.load_state_dict(saved["model"])
    if "optim" in saved: run.optim.load_state_dict(saved["optim"])
    if "ema" in saved: run.ema.shadow = saved["ema"]
    run.ema.num_updates = saved.get("updates", 0)
    run.step = saved.get("step", 0)
