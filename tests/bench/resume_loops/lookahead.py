"An optimizer around another: every fifth step goes half the way from slow weights to fast ones."
import torch
from torch import nn

from tests.bench.resume_loops import ORDER, but

WARM, STEPS = 8, 6
STATES = {"model": ("model",), "fast": ("inner", "fast", "base"), "slow": ("slow",),
          "counter": ("k_counter", "counter"), "n": ("n", *ORDER)}


class Lookahead:
    def __init__(self, inner, k=5, alpha=.5):
        self.inner, self.k, self.alpha, self.k_counter = inner, k, alpha, 0
        self.slow = [[p.detach().clone() for p in group["params"]] for group in inner.param_groups]

    def zero_grad(self): self.inner.zero_grad()

    def step(self):
        self.inner.step()
        self.k_counter += 1
        if self.k_counter < self.k: return
        self.k_counter = 0
        with torch.no_grad():
            for slow, group in zip(self.slow, self.inner.param_groups):
                for s, p in zip(slow, group["params"]):
                    s.lerp_(p, self.alpha)
                    p.copy_(s)


class Holder:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(5, 7), nn.Mish(), nn.Linear(7, 5))
        self.optimizer = Lookahead(torch.optim.Adam(self.model.parameters(), 1e-2))
        self.data = torch.randn(4, 12, 5, generator=torch.Generator().manual_seed(44))
        self.n = 0


def make(): return Holder()


def step(run):
    x = run.data[run.n % 4]
    loss = nn.functional.mse_loss(run.model(x), x.sort(1).values)
    run.optimizer.zero_grad()
    loss.backward()
    run.optimizer.step()
    run.n += 1
    return loss.item()


def save(run, without=()):
    return but({"model": run.model.state_dict(), "fast": run.optimizer.inner.state_dict(), "slow": run.optimizer.slow,
                "counter": run.optimizer.k_counter, "n": run.n}, without)


def load(run, saved):
    if "model" in saved: run.model.load_state_dict(saved["model"])
    if "fast" in saved: run.optimizer.inner.load_state_dict(saved["fast"])
    if "slow" in saved: run.optimizer.slow = saved["slow"]
    run.optimizer.k_counter, run.n = saved.get("counter", 0), saved.get("n", 0)
