"Gradients are clipped at a percentile of the norms so far, and a bad step is undone with the weights before it."
import numpy as np
import torch
from torch import nn

from tests.bench.resume_loops import but

WARM, STEPS = 9, 6
STATES = {"weights": ("model", "weight", "bias", "weights"), "momentum": ("optimizer", "momentum"),
          "norms": ("norms", "history"), "skipped": ("skipped",), "data": ("data", "generator", "batches")}


class AutoClip:
    def __init__(self, percentile=40): self.percentile, self.history, self.skipped = percentile, [], 0

    def __call__(self, parameters):
        "Whether to make the step."
        parameters = [*parameters]
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters]).item()
        self.history.append(norm)
        limit = float(np.percentile(self.history, self.percentile))
        torch.nn.utils.clip_grads_with_norm_(parameters, limit, torch.tensor(norm))
        if norm <= 2*limit: return True
        self.skipped += 1
        return False


class Session:
    def __init__(self):
        self.data = torch.Generator()
        self.data.manual_seed(25)
        self.model = nn.Sequential(nn.Linear(3, 6), nn.Hardswish(), nn.Linear(6, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), .01, momentum=.9)
        self.clip = AutoClip()

    def run_one(self):
        x = torch.randn(8, 3, generator=self.data)
        x = x*(1 + 2*(torch.rand((), generator=self.data) < .3))  # now and then a batch that is large
        loss = nn.functional.mse_loss(self.model(x), x.square().mean(1, keepdim=True))
        self.model.zero_grad()
        loss.backward()
        if self.clip(self.model.parameters()): self.optimizer.step()
        return loss.item()


def make(): return Session()
def step(session): return session.run_one()


def save(session, without=()):
    return but({"weights": [p.detach() for p in session.model.parameters()], "norms": session.clip.history,
                "momentum": session.optimizer.state_dict(), "skipped": session.clip.skipped,
                "data": session.data.get_state()}, without)


def load(session, saved):
    with torch.no_grad():
        for p, value in zip(session.model.parameters(), saved.get("weights", ())): p.copy_(value)
    if "momentum" in saved: session.optimizer.load_state_dict(saved["momentum"])
    session.clip.history, session.clip.skipped = saved.get("norms", []), saved.get("skipped", 0)
    if "data" in saved: session.data.set_state(saved["data"])
