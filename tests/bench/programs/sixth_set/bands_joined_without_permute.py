"""The outputs of a mask's layers, frames before numbers of a band, are reshaped to complex channels of a spectrogram.

The report, on a network that splits music into bands: a permutation is missing before the reshape, so the meaning of
the dimensions does not match. The author called it a bug indeed, and merged a change."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "amanteur/BandSplitRNN-PyTorch#9", 2023
AREA, CAUSE = "structure", "places mixed up"
TRUE = set()
PLACE = ("mask",)

bands, wide, frames = 4, 3, 16


class Split(nn.Module):
    "A feature vector for each band of each frame."
    def __init__(self, size: int):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.LayerNorm(2*wide), nn.Linear(2*wide, size))
                                     for _ in range(bands)])

    def forward(self, x):  # samples, real and imaginary, frequencies, frames
        parts = x.unflatten(2, (bands, wide)).permute(2, 0, 4, 3, 1).flatten(3)
        return torch.stack([layer(part) for layer, part in zip(self.layers, parts)], 1)


class Along(nn.Module):
    "A recurrent layer along the frames, then one along the bands."
    def __init__(self, size: int):
        super().__init__()
        self.time, self.band = (nn.GRU(size, size//2, bidirectional=True, batch_first=True) for _ in range(2))

    def forward(self, x):
        n = len(x)
        x = x + self.time(x.flatten(0, 1))[0].unflatten(0, (n, bands))
        turned = x.transpose(1, 2)
        return (turned + self.band(turned.flatten(0, 1))[0].unflatten(0, (n, frames))).transpose(1, 2)


class Mask(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.layers = nn.ModuleList([nn.Sequential(nn.LayerNorm(size), nn.Linear(size, 2*size), nn.Tanh(),
                                                   nn.Linear(2*size, 4*wide), nn.GLU()) for _ in range(bands)])

    def forward(self, x):
        outs = [layer(x[:, i]) for i, layer in enumerate(self.layers)]
        if self.repaired: outs = [out.permute(0, 2, 1) for out in outs]
        return torch.cat([out.reshape(len(x), 2, wide, frames) for out in outs], 2)


class Separator(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.split, self.along, self.mask = Split(size), Along(size), Mask(size, repaired)

    def forward(self, x):
        real, imaginary = self.mask(self.along(self.split(x))).unbind(1)
        return torch.stack([real*x[:, 0] - imaginary*x[:, 1], real*x[:, 1] + imaginary*x[:, 0]], 1)


def mixtures(n: int):
    "A voice that is on for some frames in some bands, lowest notes first, and noise everywhere else."
    on = (torch.rand(n, 1, bands, frames//4) < .5).repeat_interleave(wide, 2).repeat_interleave(4, 3)
    voice, noise = .5*torch.randn(n, 2, bands*wide, frames), 1.5*torch.randn(n, 2, bands*wide, frames)
    voice[:, 0, ::wide] += 2
    return torch.where(on, voice, noise), voice*on


def build(repaired: bool) -> Parts:
    model = Separator(24, repaired)
    data = [mixtures(16) for _ in range(40)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, F.l1_loss, valid=[mixtures(100)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            for x, voice in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), voice)
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 5.)
                parts.optimizer.step()
                record.step(loss)
    x, voice = parts.valid[0]
    with torch.no_grad(): return (parts.loss(parts.model(x), voice)/voice.abs().mean()).item()
