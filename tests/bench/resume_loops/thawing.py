"A body that is frozen at first; from the fourth step on it trains too, in a group of parameters of its own."
import torch
from torch import nn

from tests.bench.resume_loops import but

WARM, STEPS, THAW = 7, 6, 4
STATES = {"body": ("body",), "head": ("head",), "optimizer": ("optimizer",),
          "thawed": ("thawed", "requires_grad", "param_groups"), "i": ("i",)}
CONSEQUENCES = {"thawed": ("optimizer", "body", "requires_grad")}  # a group that is not there gets no state


class FineTuning:
    def __init__(self):
        torch.manual_seed(17)
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU()).requires_grad_(False)
        self.head = nn.Linear(8, 3)
        self.optimizer = torch.optim.Adam(self.head.parameters(), lr=1e-2)
        self.x = torch.randn(24, 4)
        self.y = self.x[:, 1:].argmax(1)
        self.i, self.thawed = 0, False

    def thaw(self):
        self.body.requires_grad_(True)
        self.optimizer.add_param_group({"params": [*self.body.parameters()], "lr": 1e-3})
        self.thawed = True

    def step(self):
        if self.i == THAW: self.thaw()
        loss = nn.functional.cross_entropy(self.head(self.body(self.x)), self.y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.i += 1
        return loss.detach()


def make(): return FineTuning()
def step(run): return run.step()


def save(run, without=()):
    return but(dict(body=run.body.state_dict(), head=run.head.state_dict(), optimizer=run.optimizer.state_dict(),
                    thawed=run.thawed, i=run.i), without)


def load(run, saved):
    run.i = saved.get("i", THAW + 1 if saved.get("thawed") else 0)
    if saved.get("thawed"): run.thaw()
    for name in ("body", "head"):
        if name in saved: getattr(run, name).load_state_dict(saved[name])
    if "optimizer" in saved:
        groups = saved["optimizer"]["param_groups"][:len(run.optimizer.param_groups)]
        known = {i for group in groups for i in group["params"]}
        state = {i: value for i, value in saved["optimizer"]["state"].items() if i in known}
        run.optimizer.load_state_dict({"state": state, "param_groups": groups})
