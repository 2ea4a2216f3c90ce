"""The masses of a spectrum are cast to bfloat16 before they are encoded, which leaves two or three of their digits.

The report: a transformer for mass spectra trained in bfloat16 cannot tell masses apart: neither they nor the large
factors of their encoding can be written in that type. A merged change encodes in float32 and casts the result."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "wfondrie/depthcharge#82", 2025
AREA, CAUSE = "precision", "rounded"
TRUE = set()
PLACE = ("encoder",)


class MassEncoder(nn.Module):
    "Sines and cosines of a mass, with wavelengths from a hundredth to ten thousand."
    def __init__(self, size: int):
        super().__init__()
        self.register_buffer("factors", 2*math.pi/torch.logspace(-2, 4, size//2))

    def forward(self, mass):
        angle = mass[..., None]*self.factors.to(mass.dtype)
        return torch.cat([angle.sin(), angle.cos()], -1)


class Spectra(nn.Module):
    "Peaks as tokens: their encoded mass and their height."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.encoder, self.height = MassEncoder(size), nn.Linear(1, size)
        self.layer = nn.TransformerEncoderLayer(size, 4, 2*size, 0., batch_first=True)
        self.last = nn.Linear(size, 3)

    def forward(self, mass, height):
        kind = self.last.weight.dtype
        mass = self.encoder(mass).to(kind) if self.repaired else self.encoder(mass.to(kind))
        return self.last(self.layer(mass + self.height(height[..., None].to(kind))).mean(1))


def spectra(n: int):
    "Six peaks; the kind of molecule shows in what is behind the point of the masses."
    kind = torch.randint(0, 3, (n,))
    mass = torch.randint(200, 1000, (n, 6)) + .3*kind[:, None] + .1*torch.rand(n, 6)
    noise = torch.rand(n, 6) < .3
    return torch.where(noise, 200 + 800*torch.rand(n, 6), mass), torch.rand(n, 6), kind


def build(repaired: bool) -> Parts:
    model = Spectra(32, repaired).bfloat16()
    model.encoder = MassEncoder(32)
    mass, height, kind = spectra(2048)
    data = [(mass[i:i + 64], height[i:i + 64], kind[i:i + 64]) for i in range(0, 2048, 64)]

    def call(model, batch): return F.cross_entropy(model(*batch[:2]).float(), batch[2])

    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3), data, call=call, valid=[spectra(512)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    mass, height, kind = parts.valid[0]
    with torch.no_grad(): return (parts.model(mass, height).argmax(1) != kind).float().mean().item()*1.5
