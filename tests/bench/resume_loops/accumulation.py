"Gradients of four batches are accumulated, and the checkpoint is written in the midst of them."
import torch
from torch import nn

from tests.bench.resume_loops import ORDER, but

WARM, STEPS = 10, 6
STATES = {"model": ("model",), "optimizer": ("optimizer",), "gradients": ("grad", "gradient", "gradients"),
          "micro": ("micro", *ORDER), "updates": ("updates",)}
ACCUMULATE = 4


class Accumulating:
    def __init__(self):
        made = torch.Generator().manual_seed(41)
        self.x = torch.randn(33, 5, generator=made)
        self.y = self.x.relu().sum(1, keepdim=True)
        self.model = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.LayerNorm(10), nn.Linear(10, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self.micro = self.updates = 0

    def forward_backward(self):
        rows = slice(self.micro % 11*3, self.micro % 11*3 + 3)
        loss = nn.functional.mse_loss(self.model(self.x[rows]), self.y[rows])/ACCUMULATE
        loss.backward()
        self.micro += 1
        if self.micro % ACCUMULATE == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.updates += 1
        return loss.item()*ACCUMULATE


def make(): return Accumulating()
def step(run): return run.forward_backward()


def save(run, without=()):
    gradients = {name: p.grad for name, p in run.model.named_parameters() if p.grad is not None}
    return but({"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict(), "gradients": gradients,
                "micro": run.micro, "updates": run.updates}, without)


def load(run, saved):
    if "model" in saved: run.model.load_state_dict(saved["model"])
    if "optimizer" in saved: run.optimizer.load_state_dict(saved["optimizer"])
    for name, gradient in saved.get("gradients", {}).items(): run.model.get_parameter(name).grad = gradient.clone()
    run.micro, run.updates = saved.get("micro", 0), saved.get("updates", 0)
