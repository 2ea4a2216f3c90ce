"""The channels and bands of a spectrogram are laid side by side with a `view`, which mixes bands with moments.

The report: a network that separates voices brings (batch, channel, moment, band) to one vector per moment by `view`,
without a permutation before it, so each vector has parts of several moments. The author thanked for it and had mended
the same mistake where the code went on to live, without much gain there."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "vitrioil/Speech-Separation#4", 2021
AREA, CAUSE = "structure", "places mixed up"
TRUE = set()
PLACE = ("sound", "lstm")

moments, bands = 16, 12


class Separator(nn.Module):
    "Which part of each band belongs to the speaker who is seen: convolutions for sound and face, then an LSTM."
    def __init__(self, repaired: bool):
        super().__init__()
        self.sound = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(),
                                   nn.Conv2d(12, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.face = nn.Sequential(nn.Conv1d(4, 16, 3, padding=1), nn.BatchNorm1d(16), nn.ReLU())
        self.lstm = nn.LSTM(4*bands + 16, 32, batch_first=True, bidirectional=True)
        self.mask = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, bands), nn.Sigmoid())
        self.repaired = repaired

    def forward(self, sound, face):
        x = self.sound(sound[:, None])
        if self.repaired: x = x.permute(0, 2, 1, 3).reshape(len(x), moments, -1)
        else: x = x.view(len(x), -1, moments).transpose(1, 2)
        x, _ = self.lstm(torch.cat([x, self.face(face).transpose(1, 2)], 2))
        return self.mask(x)*sound


def scenes(n: int, voices):
    "Two of four voices talk at once, each with pauses; the mouth of one of them is seen."
    who = torch.stack([torch.randperm(4)[:2] for _ in range(n)])
    talks = (torch.rand(n, 2, moments//2) < .6).float().repeat_interleave(2, 2)
    both = talks[..., None]*voices[who][:, :, None]*(.5 + torch.rand(n, 2, moments, bands))
    face = F.one_hot(who[:, 0], 4)[..., None]*(.5 + talks[:, :1]) + .1*torch.randn(n, 4, moments)
    return both.sum(1), face, both[:, 0]


def build(repaired: bool) -> Parts:
    voices = torch.rand(4, bands)**2
    model = Separator(repaired)
    data = [scenes(16, voices) for _ in range(40)]
    def call(model, batch): return F.mse_loss(model(*batch[:2]), batch[2])
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, call=call, valid=[scenes(200, voices)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            parts.model.train()
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    with torch.no_grad(): return (parts.call(parts.model, parts.valid[0])/parts.valid[0][2].var()).item()
