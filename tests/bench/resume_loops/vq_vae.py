"A codebook that follows its clusters by averages, and wakes codes that are not used."
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.resume_loops import TORCH_RANDOM, but

WARM, STEPS = 7, 6
STATES = {"encoder": ("encoder",), "decoder": ("decoder",), "codes": ("codes",), "sizes": ("sizes", "cluster_sizes"),
          "sums": ("sums",), "idle": ("idle",), "optimizer": ("optimizer",), "rng": TORCH_RANDOM}


class Codebook:
    "No module: its tensors are in no state dict."
    def __init__(self, n, width, decay=.8):
        self.codes = torch.randn(n, width)
        self.sizes, self.sums, self.decay = torch.ones(n), self.codes.clone(), decay
        self.idle = [0]*n

    @torch.no_grad()
    def __call__(self, z):
        nearest = torch.cdist(z, self.codes).argmin(1)
        chosen = F.one_hot(nearest, len(self.codes)).float()
        self.sizes = self.decay*self.sizes + (1 - self.decay)*chosen.sum(0)
        self.sums = self.decay*self.sums + (1 - self.decay)*chosen.T @ z
        quantized = self.codes[nearest]
        self.codes = self.sums/(self.sizes[:, None] + 1e-5)
        self.idle = [0 if used else idle + 1 for used, idle in zip(chosen.any(0).tolist(), self.idle)]
        for i, idle in enumerate(self.idle):
            if idle < 4: continue
            self.codes[i] = self.sums[i] = z[torch.randint(len(z), ())]
            self.sizes[i], self.idle[i] = 1., 0
        return quantized


class VQ:
    def __init__(self):
        self.encoder, self.decoder, self.codebook = nn.Linear(6, 3), nn.Linear(3, 6), Codebook(12, 3)
        self.optimizer = torch.optim.Adam([*self.encoder.parameters(), *self.decoder.parameters()], 1e-2)

    def step(self):
        x = torch.randn(20, 6)
        z = self.encoder(x)
        q = self.codebook(z)
        loss = F.mse_loss(self.decoder(z + (q - z).detach()), x) + .25*F.mse_loss(z, q)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def make(): return VQ()
def step(run): return run.step()


def save(run, without=()):
    saved = {name: getattr(run, name).state_dict() for name in ("encoder", "decoder", "optimizer")}
    saved |= {name: getattr(run.codebook, name) for name in ("codes", "sizes", "sums", "idle")}
    return but(saved | {"rng": torch.get_rng_state()}, without)


def load(run, saved):
    for name, value in saved.items():
        if name == "rng": torch.set_rng_state(value)
        elif name in ("encoder", "decoder", "optimizer"): getattr(run, name).load_state_dict(value)
        else: setattr(run.codebook, name, value)
