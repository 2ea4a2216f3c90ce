"""neuraloperator: a Fourier neural operator moves a field forward in time; batches are dicts of fields x and y.

After the example "Training an FNO on Darcy flow" of neuraloperator: the model takes the entry x, the loss is the
relative H1 norm, a cosine schedule by epochs, complex weights. Error: relative L2 norm on fields held back."""
import math

import torch
from neuralop.losses import H1Loss, LpLoss
from neuralop.models import FNO
from torch.utils.data import DataLoader

from tests.bench.libraries._data import mean_loss
from tests.bench.programs import Parts

SOURCE = "neuraloperator: Training an FNO on Darcy flow"
PACKAGES = ("neuraloperator",)
SIDE = 16


def fields(n: int) -> list[dict]:
    "Smooth fields, and what they are after some diffusion and a shift."
    rate = torch.fft.fftfreq(SIDE, 1/SIDE)
    far = rate[:, None]**2 + rate[None]**2
    x = torch.fft.ifft2(torch.fft.fft2(torch.randn(n, 1, SIDE, SIDE))*torch.exp(-far/12)).real*3
    move = torch.exp(-.04*far - 2j*math.pi*(rate[:, None] + rate[None])*.15)
    y = torch.fft.ifft2(torch.fft.fft2(x)*move).real
    return [{"x": a, "y": b} for a, b in zip(x, y)]


def build() -> Parts:
    model, h1 = FNO(n_modes=(8, 8), in_channels=1, out_channels=1, hidden_channels=12, n_layers=2), H1Loss(d=2)
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=8e-3, weight_decay=1e-4),
                 DataLoader(fields(256), 32, shuffle=True), call=lambda model, batch: h1(model(batch["x"]), batch["y"]),
                 valid=DataLoader(fields(96), 32))


def error(parts: Parts) -> float:
    l2 = LpLoss(d=2, p=2)
    return mean_loss(parts.model, parts.valid, lambda model, batch: l2(model(batch["x"]), batch["y"])/len(batch["x"]))


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=30)
    with record.on(model, optimizer=optimizer):
        for _ in range(12):
            model.train()
            for batch in parts.data:
                optimizer.zero_grad(set_to_none=True)
                loss = parts.call(model, batch)
                loss.backward()
                optimizer.step()
                record.step(loss)
            schedule.step()
            error(parts)
    return error(parts)
