"Two tasks weighted by their uncertainty, which is learned, and by how fast their losses fall."
import torch
from torch import nn

from tests.bench.resume_loops import but

WARM, STEPS = 6, 6
STATES = {"shared": ("shared",), "heads": ("heads",), "log_vars": ("log_vars",), "adam": ("adam",),
          "previous": ("previous", "task_losses")}


class TwoTasks:
    def __init__(self):
        torch.manual_seed(80)
        self.x = torch.randn(30, 6)
        self.classes, self.values = (self.x[:, 0] > 0).long(), self.x[:, 1:3].sin()
        self.shared = nn.Sequential(nn.Linear(6, 12), nn.ReLU())
        self.heads = nn.ModuleDict({"kinds": nn.Linear(12, 2), "sizes": nn.Linear(12, 2)})
        self.log_vars = torch.zeros(2, requires_grad=True)
        self.adam = torch.optim.Adam([{"params": [*self.shared.parameters(), *self.heads.parameters()]},
                                      {"params": [self.log_vars], "lr": 3e-2}], lr=1e-2)
        self.previous = None

    def step(self):
        h = self.shared(self.x)
        losses = torch.stack([nn.functional.cross_entropy(self.heads["kinds"](h), self.classes),
                              nn.functional.mse_loss(self.heads["sizes"](h), self.values)])
        now = losses.detach()
        speed = torch.ones(2) if self.previous is None else (now/self.previous).softmax(0)*2
        self.previous = now
        loss = (speed*(losses*torch.exp(-self.log_vars) + self.log_vars)).sum()
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        return loss.item()


def make(): return TwoTasks()
def step(run): return run.step()


def save(run, without=()):
    return but({"shared": run.shared.state_dict(), "heads": run.heads.state_dict(), "adam": run.adam.state_dict(),
                "log_vars": run.log_vars.detach(), "previous": run.previous}, without)


def load(run, saved):
    for name in ("shared", "heads", "adam"):
        if name in saved: getattr(run, name).load_state_dict(saved[name])
    if "log_vars" in saved: run.log_vars.data.copy_(saved["log_vars"])
    run.previous = saved.get("previous")
