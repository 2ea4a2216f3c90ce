"Two halves that train in turn: `requires_grad` says whose turn it is, and nothing else does."
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.resume_loops import but

WARM, STEPS, TURN = 5, 6, 3
STATES = {"left": ("left",), "right": ("right",), "optimizer": ("optimizer",), "turn": ("requires_grad", "grad"),
          "since": ("since",)}
CONSEQUENCES = {"turn": ("left", "right")}


class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = nn.Sequential(nn.Linear(3, 6), nn.Tanh())
        self.right = nn.Linear(6, 3)

    def forward(self, x): return self.right(self.left(x))


class InTurn:
    def __init__(self):
        self.model = Halves()
        self.model.right.requires_grad_(False)
        self.optimizer = torch.optim.SGD(self.model.parameters(), .3, momentum=.9)
        self.since = 0
        self.x = torch.randn(20, 3, generator=torch.Generator().manual_seed(5))

    def switch(self):
        for p in self.model.parameters(): p.requires_grad_(not p.requires_grad)
        self.since = 0

    def step(self):
        loss = F.mse_loss(self.model(self.x), self.x.roll(1, 1))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.since += 1
        if self.since == TURN: self.switch()
        return loss.item()


def make(): return InTurn()
def step(run): return run.step()


def save(run, without=()):
    return but({"left": run.model.left.state_dict(), "right": run.model.right.state_dict(), "since": run.since,
                "optimizer": run.optimizer.state_dict(),
                "turn": {name: p.requires_grad for name, p in run.model.named_parameters()}}, without)


def load(run, saved):
    if "left" in saved: run.model.left.load_state_dict(saved["left"])
    if "right" in saved: run.model.right.load_state_dict(saved["right"])
    if "optimizer" in saved: run.optimizer.load_state_dict(saved["optimizer"])
    for name, on in saved.get("turn", {}).items(): run.model.get_parameter(name).requires_grad_(on)
    run.since = saved.get("since", 0)
