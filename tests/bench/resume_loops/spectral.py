"A critic with spectral norm, whose power iteration goes on from vectors in buffers; pruned from a step on."
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from tests.bench.resume_loops import TORCH_RANDOM, but

WARM, STEPS = 6, 5
STATES = {"first": ("first",), "second": ("second",), "mask": ("mask", "weight_mask", "second"), "opt": ("opt",),
          "done": ("done",), "rng": TORCH_RANDOM}
CONSEQUENCES = {"mask": ("second", "weight", "weight_orig")}


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = parametrizations.spectral_norm(nn.Linear(5, 10))
        self.second = nn.Linear(10, 1)

    def forward(self, x): return self.second(nn.functional.leaky_relu(self.first(x), .1))


class Run:
    def __init__(self):
        self.critic = Critic()
        prune.identity(self.critic.second, "weight")  # a mask of ones
        self.opt = torch.optim.Adam(self.critic.parameters(), 5e-3)
        self.done = 0

    def step(self):
        if self.done == 4: self.critic.second.weight_mask[:, ::2] = 0
        real, fake = torch.randn(12, 5) + .7, torch.randn(12, 5)
        loss = (1 - self.critic(real)).relu().mean() + (1 + self.critic(fake)).relu().mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.done += 1
        return loss.detach()


def make(): return Run()
def step(run): return run.step()


def save(run, without=()):
    second = run.critic.second.state_dict()
    mask = second.pop("weight_mask")
    return but({"first": run.critic.first.state_dict(), "second": second, "mask": mask, "opt": run.opt.state_dict(),
                "done": run.done, "rng": torch.get_rng_state()}, without)


def load(run, saved):
    if "first" in saved: run.critic.first.load_state_dict(saved["first"])
    if "second" in saved: run.critic.second.load_state_dict(saved["second"], strict=False)
    if "mask" in saved: run.critic.second.weight_mask.copy_(saved["mask"])
    if "opt" in saved: run.opt.load_state_dict(saved["opt"])
    if "rng" in saved: torch.set_rng_state(saved["rng"])
    run.done = saved.get("done", 0)
    return run
