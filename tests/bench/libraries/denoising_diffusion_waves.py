"""denoising-diffusion-pytorch: a small one-dimensional U-Net removes noise from waves.

After the README of the library, its 1D part: the diffusion owns the net and returns its loss from a batch that is one
tensor of sequences. Error: mean loss on waves held back, over many times and noises."""
import math

import torch
from denoising_diffusion_pytorch import GaussianDiffusion1D, Unet1D
from torch.utils.data import DataLoader

from tests.bench.programs import Parts

SOURCE = "denoising-diffusion-pytorch: README, 1D sequence"
PACKAGES = ("denoising-diffusion-pytorch",)


def waves(n: int):
    "Between 0 and 1, as the library wants them."
    t = torch.linspace(0, 1, 32)
    rate, phase = 1 + 2*torch.rand(n, 1), 2*math.pi*torch.rand(n, 1)
    return (.5 + .45*torch.sin(2*math.pi*rate*t + phase))[:, None]


def call(model, batch): return model(batch)


def build() -> Parts:
    net = Unet1D(dim=16, dim_mults=(1, 2), channels=1)
    model = GaussianDiffusion1D(net, seq_length=32, timesteps=100, objective="pred_v")
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3, betas=(.9, .99)),
                 DataLoader(waves(512), 32, shuffle=True, drop_last=True), call=call, valid=DataLoader(waves(256), 64))


@torch.no_grad()
def error(parts: Parts) -> float:
    parts.model.eval()
    return sum(call(parts.model, batch).item() for _ in range(4) for batch in parts.valid)/(4*len(parts.valid))


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer=optimizer):
        for _ in range(8):
            model.train()
            for batch in parts.data:
                loss = call(model, batch)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.)
                optimizer.step()
                optimizer.zero_grad()
                record.step(loss)
    return error(parts)
