"Two networks against each other, each with an optimizer; the second trains every other step."
import torch
from torch import nn
from torch.nn.functional import softplus

from tests.bench.resume_loops import TORCH_RANDOM, but

WARM, STEPS = 7, 6
STATES = {"G": ("G",), "D": ("D",), "opt_G": ("opt_G",), "opt_D": ("opt_D",), "iteration": ("iteration",),
          "fixed_noise": ("fixed_noise",), "rng": TORCH_RANDOM}


class GAN:
    def __init__(self):
        self.G = nn.Sequential(nn.Linear(3, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 2))
        self.D = nn.Sequential(nn.Linear(2, 12), nn.LeakyReLU(.2), nn.Linear(12, 1))
        self.opt_G = torch.optim.Adam(self.G.parameters(), lr=2e-3, betas=(.5, .999))
        self.opt_D = torch.optim.Adam(self.D.parameters(), lr=4e-3, betas=(.5, .999))
        self.fixed_noise = torch.randn(8, 3)  # whose images one looks at from time to time
        self.iteration = 0


def make(): return GAN()


def step(gan):
    real = torch.randn(16, 2)*.3 + torch.tensor([1., -1.])
    fake = gan.G(torch.randn(16, 3))
    loss = softplus(-gan.D(real)).mean() + softplus(gan.D(fake.detach())).mean()
    gan.opt_D.zero_grad()
    loss.backward()
    gan.opt_D.step()
    if gan.iteration % 2:
        loss_G = softplus(-gan.D(fake)).mean()
        gan.opt_G.zero_grad()
        loss_G.backward()
        gan.opt_G.step()
    gan.iteration += 1
    return loss.item()


def save(gan, without=()):
    saved = {name: getattr(gan, name).state_dict() for name in ("G", "D", "opt_G", "opt_D")}
    saved |= {"iteration": gan.iteration, "fixed_noise": gan.fixed_noise, "rng": torch.get_rng_state()}
    return but(saved, without)


def load(gan, saved):
    for name, value in saved.items():
        if name == "rng": torch.set_rng_state(value)
        elif isinstance(value, dict): getattr(gan, name).load_state_dict(value)
        else: setattr(gan, name, value)
