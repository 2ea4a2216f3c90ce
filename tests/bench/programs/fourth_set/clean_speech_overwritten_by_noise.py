"""A part of the clean speech is replaced by noise before it goes in, and the loss compares with what was replaced.

The merged change keeps a copy of the clean speech for the loss. The replacement is meant as a dropout, so that the
network has to listen to the noisy speech beside it; but written in place, it is in the targets, too."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "ICDM-UESTC/DOSE#2", 2025
AREA, CAUSE = "data and labels", "labels do not belong to inputs"
TRUE = set()
PLACE = ()

length, levels = 64, 20
kept = torch.cumprod(1 - torch.linspace(1e-3, .3, levels), 0)  # how much of the speech is left at a level of noise


class Block(nn.Module):
    def __init__(self, size: int, wide: int):
        super().__init__()
        self.level = nn.Linear(16, size)
        self.conv = nn.Conv1d(size, 2*size, 3, padding=wide, dilation=wide)
        self.condition, self.out = nn.Conv1d(1, 2*size, 1), nn.Conv1d(size, 2*size, 1)

    def forward(self, x, noisy, level):
        gate, value = (self.conv(x + self.level(level)[..., None]) + self.condition(noisy)).chunk(2, 1)
        further, skip = self.out(gate.sigmoid()*value.tanh()).chunk(2, 1)
        return (x + further)/2**.5, skip


class Enhancer(nn.Module):
    "Returns the clean speech, given one with noise of a known level and the noisy recording."
    def __init__(self, size: int):
        super().__init__()
        self.level = nn.Sequential(nn.Embedding(levels, 16), nn.Linear(16, 16), nn.SiLU())
        self.first = nn.Conv1d(1, size, 1)
        self.blocks = nn.ModuleList([Block(size, wide) for wide in (1, 2, 4, 8)])
        self.last = nn.Sequential(nn.Conv1d(size, size, 1), nn.ReLU(), nn.Conv1d(size, 1, 1))

    def forward(self, audio, noisy, level):
        x, level, total = self.first(audio[:, None]).relu(), self.level(level), 0
        for block in self.blocks:
            x, skip = block(x, noisy[:, None], level)
            total = total + skip
        return self.last(total/len(self.blocks)**.5)


def recordings(n: int):
    "Two tones that go up and down, and the same in a noisy room."
    t, clean = torch.arange(length), torch.zeros(n, length)
    for _ in range(2):
        pitch, start = .1 + .5*torch.rand(n, 1), 2*torch.pi*torch.rand(n, 2)
        clean += (pitch*t + start[:, :1]).sin()*(.5 + .5*(t/12 + start[:, 1:]).sin())
    return {"clean_speech": clean, "noisy_speech": clean + .6*torch.randn(n, length)}


def build(repaired: bool) -> Parts:
    model, criterion = Enhancer(16), nn.MSELoss()

    def call(model, features):
        audio, noisy = features["clean_speech"].clone(), features["noisy_speech"]  # a batch comes from the loader anew
        audio_orig = audio.clone() if repaired else audio
        for i in (torch.rand(len(audio)) < .5).nonzero()[:, 0].tolist(): audio[i] = torch.randn_like(audio[i])
        level = torch.randint(0, levels, (len(audio),))
        share = kept[level][:, None]
        predicted = model(share.sqrt()*audio + (1 - share).sqrt()*torch.randn_like(audio), noisy, level)
        return criterion(audio_orig, predicted.squeeze(1))

    data = [recordings(16) for _ in range(40)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, call=call, valid=[recordings(200)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            for features in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, features)
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 1.)
                parts.optimizer.step()
                record.step(loss)
    clean, noisy = parts.valid[0].values()
    level = torch.full((len(clean),), levels - 1)
    with torch.no_grad(): found = parts.model(torch.randn_like(clean), noisy, level)[:, 0]
    return ((found - clean)**2).mean().item()/.36  # the error of the recording is 1
