"""The cosine between a voice and its class is rounded to a little above one, and the root for its sine is NaN.

The report: training with an additive angular margin ends with a loss that is not finite. A merged change keeps the
cosine a small step inside of minus one and one; another user had reported the same."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "speechbrain/speechbrain#1279", 2022
AREA, CAUSE = "precision", "NaN or Inf"
TRUE = set()
PLACE = ()


class Voices(nn.Module):
    "Embeddings of short pieces of sound, and the cosines with a vector for each speaker."
    def __init__(self, bands: int, size: int, speakers: int):
        super().__init__()
        self.blocks = nn.Sequential(nn.Conv1d(bands, size, 5, dilation=2), nn.ReLU(), nn.BatchNorm1d(size),
                                    nn.Conv1d(size, size, 3), nn.ReLU(), nn.BatchNorm1d(size))
        self.embed = nn.Linear(2*size, 2)
        self.speakers = nn.Parameter(torch.empty(speakers, 2))
        nn.init.xavier_uniform_(self.speakers)

    def forward(self, sound):
        x = self.blocks(sound)
        x = self.embed(torch.cat([x.mean(2), x.std(2)], 1))
        return F.linear(F.normalize(x), F.normalize(self.speakers))


def angular_margin(cosine, speaker, repaired: bool, margin: float = .2, scale: float = 20.):
    if repaired: cosine = cosine.clamp(-1 + 1e-7, 1 - 1e-7)
    sine = (1 - cosine**2).sqrt()
    wider = cosine*math.cos(margin) - sine*math.sin(margin)
    wider = torch.where(cosine > math.cos(math.pi - margin), wider, cosine - margin*math.sin(math.pi - margin))
    own = F.one_hot(speaker, cosine.shape[1]).float()
    return F.cross_entropy(scale*(own*wider + (1 - own)*cosine), speaker)


tones = torch.randn(6, 12, generator=torch.Generator().manual_seed(3))


def sounds(n: int):
    speaker = torch.randint(0, 6, (n,))
    loud = torch.rand(n, 1, 24) < .7
    return .7*tones[speaker][:, :, None]*loud + torch.randn(n, 12, 24), speaker


def build(repaired: bool) -> Parts:
    model = Voices(12, 24, 6)
    sound, speaker = sounds(1024)
    data = [(sound[i:i + 32], speaker[i:i + 32]) for i in range(0, 1024, 32)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data,
                 lambda output, speaker: angular_margin(output, speaker, repaired), valid=[sounds(256)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(12):
            parts.model.train()
            for sound, speaker in parts.data:
                loss = parts.loss(parts.model(sound), speaker)
                loss.backward()
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    parts.model.eval()
    sound, speaker = parts.valid[0]
    with torch.no_grad(): return (parts.model(sound).argmax(1) != speaker).float().mean().item()
