"A discrete autoencoder: the temperature of its choices falls, the weight of the entropy rises."
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.resume_loops import TORCH_RANDOM, but

WARM, STEPS = 8, 6
STATES = {"auto": ("auto",), "optimizer": ("optimizer",), "temperature": ("temperature", "tau"),
          "beta": ("beta",), "random": TORCH_RANDOM}


class Annealed:
    "A value that is multiplied in each step, down or up to a bound."
    def __init__(self, value, factor, bound): self.value, self.factor, self.bound = value, factor, bound

    def tick(self):
        self.value *= self.factor
        if math.log(self.value/self.bound)*math.log(self.factor) > 0: self.value = self.bound


class Auto(nn.Module):
    def __init__(self, x=5, codes=4):
        super().__init__()
        self.down, self.up = nn.Linear(x, codes), nn.Linear(codes, x)

    def forward(self, x, tau):
        logits = self.down(x)
        return self.up(F.gumbel_softmax(logits, tau)), torch.special.entr(logits.softmax(1)).sum(1).mean()


class Run:
    def __init__(self):
        self.auto = Auto()
        self.optimizer = torch.optim.Adam(self.auto.parameters(), 2e-2)
        self.tau, self.beta = Annealed(2., .95, .3), Annealed(1e-3, 1.3, 1.)
        self.x = torch.randn(40, 5, generator=torch.Generator().manual_seed(4)).sign()


def make(): return Run()


def step(run):
    back, entropy = run.auto(run.x, run.tau.value)
    loss = F.mse_loss(back, run.x) - run.beta.value*entropy
    run.optimizer.zero_grad()
    loss.backward()
    run.optimizer.step()
    run.tau.tick()
    run.beta.tick()
    return loss.detach()


def save(run, without=()):
    return but({"auto": run.auto.state_dict(), "optimizer": run.optimizer.state_dict(), "beta": run.beta.value,
                "temperature": run.tau.value, "random": torch.random.get_rng_state()}, without)


def load(run, saved):
    if "auto" in saved: run.auto.load_state_dict(saved["auto"])
    if "optimizer" in saved: run.optimizer.load_state_dict(saved["optimizer"])
    run.tau.value = saved.get("temperature", run.tau.value)
    run.beta.value = saved.get("beta", run.beta.value)
    if "random" in saved: torch.random.set_rng_state(saved["random"])
