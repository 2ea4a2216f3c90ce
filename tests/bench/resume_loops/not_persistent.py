"Buffers that a state dict leaves out: an average of activations, by which the layer divides, and a position."
import torch
from torch import nn

from tests.bench.resume_loops import TORCH_RANDOM, but

WARM, STEPS = 6, 5
STATES = {"net": ("net",), "opt": ("opt",), "scale": ("scale",), "calls": ("calls",), "rng": TORCH_RANDOM}


class Scaled(nn.Module):
    "Divides by a moving average of the size of its inputs."
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.register_buffer("scale", torch.ones(width), persistent=False)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long), persistent=False)

    def forward(self, x):
        with torch.no_grad():
            self.scale.lerp_(x.abs().mean(0), 1/(2 + min(int(self.calls), 10)))
            self.calls += 1
        return self.gain*x/(self.scale + .1)


class Pair:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(4, 8), Scaled(8), nn.Tanh(), nn.Linear(8, 4), Scaled(4))
        self.opt = torch.optim.Adam(self.net.parameters(), 1e-2)


def make(): return Pair()


def step(run):
    x = 3*torch.randn(10, 4)
    loss = nn.functional.l1_loss(run.net(x), x.sign())
    run.opt.zero_grad()
    loss.backward()
    run.opt.step()
    return loss.detach()


def scaled(run): return [layer for layer in run.net if isinstance(layer, Scaled)]


def save(run, without=()):
    return but({"net": run.net.state_dict(), "opt": run.opt.state_dict(), "rng": torch.get_rng_state(),
                "scale": [layer.scale for layer in scaled(run)], "calls": [int(la.calls) for la in scaled(run)]},
               without)


def load(run, saved):
    if "net" in saved: run.net.load_state_dict(saved["net"])
    if "opt" in saved: run.opt.load_state_dict(saved["opt"])
    for layer, scale in zip(scaled(run), saved.get("scale", ())): layer.scale.copy_(scale)
    for layer, calls in zip(scaled(run), saved.get("calls", ())): layer.calls.fill_(calls)
    if "rng" in saved: torch.set_rng_state(saved["rng"])
