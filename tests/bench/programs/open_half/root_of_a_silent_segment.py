"""A small number is added after the root of a segment's energy and not before it: the gradient of silence is NaN.

The report: a measure of how well speech is understood, taken as the loss, sometimes gives NaN gradients. Adding the
small number to what the root is taken of mended it; the maintainer took the change."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "mpariente/pytorch_stoi#7", 2021
AREA, CAUSE = "precision", "NaN or Inf"
TRUE = set()
PLACE = ()


class Denoiser(nn.Module):
    "A factor for each band and moment of a spectrum."
    def __init__(self, bands: int, size: int):
        super().__init__()
        self.memory = nn.GRU(bands, size, batch_first=True)
        self.last = nn.Linear(size, bands)

    def forward(self, noisy): return noisy*self.last(self.memory(noisy)[0]).sigmoid()


def understood(output, clean, repaired: bool, small: float = 1e-8):
    "Minus the mean correlation of short segments of each band."
    def scaled(x):
        x = x.unfold(1, 8, 8)
        x = x - x.mean(3, keepdim=True)
        energy = x.square().sum(3, keepdim=True)
        return x/((energy + small).sqrt() if repaired else energy.sqrt() + small)

    return -(scaled(output)*scaled(clean)).sum(3).mean()


def speech(n: int):
    "Spectra of 32 moments and 6 bands with loud clicks; some clips are shorter and end in silence."
    clean = torch.randn(n, 32, 6).cumsum(1).sin().relu()
    clean = clean*(torch.rand(n, 1, 6) < .5)*torch.empty(n, 1, 6).uniform_(1, 3)
    noisy = clean + 6*(torch.rand(n, 32, 6) < .15)
    ends = torch.where(torch.rand(n) < .1, 24, 32)
    heard = torch.arange(32)[None, :, None] < ends[:, None, None]
    return noisy*heard, clean*heard


def build(repaired: bool) -> Parts:
    model = Denoiser(6, 32)
    noisy, clean = speech(512)
    data = [(noisy[i:i + 16], clean[i:i + 16]) for i in range(0, 512, 16)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data,
                 lambda output, clean: understood(output, clean, repaired), valid=[speech(128)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            for noisy, clean in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(noisy), clean)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    noisy, clean = parts.valid[0]
    with torch.no_grad(): reached, before = (understood(x, clean, True) for x in (parts.model(noisy), noisy))
    best = understood(clean, clean, True)
    return ((reached - best)/(before - best)).item()
