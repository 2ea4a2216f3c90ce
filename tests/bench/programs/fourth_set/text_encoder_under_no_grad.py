"""A decorator keeps the encoder of the texts out of training, though only its first layers are meant to be frozen.

The report: the text model of the published weights is the same as the one it started from, although the paper freezes
six layers only. The author found a `no_grad` too many at the function that encodes the texts. What is learned is the
image side alone, and the projection of whatever the texts give."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "cheliu-computation/MERL-ICML2024#14", 2025
AREA, CAUSE = "parameters", "detached part"
TRUE = {"not trained"}
PLACE = ("reader.blocks.1",)

leads, samples, findings, words, length = 4, 48, 6, 40, 12


class Reader(nn.Module):
    "A language model: the mean of what its blocks make of the words of a report."
    def __init__(self, size: int):
        super().__init__()
        self.word, self.place = nn.Embedding(words, size), nn.Parameter(.1*torch.randn(length, size))
        self.blocks = nn.ModuleList([nn.TransformerEncoderLayer(size, 4, 2*size, 0., batch_first=True)
                                     for _ in range(2)])

    def forward(self, ids):
        x = self.word(ids) + self.place
        for block in self.blocks: x = block(x)
        return x.mean(1)


class HeartAndReport(nn.Module):
    "Signals of the heart and reports, brought to one space."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.repaired, self.reader = repaired, Reader(size)
        self.signal = nn.Sequential(nn.Conv1d(leads, 16, 7, 2, 3), nn.ReLU(), nn.Conv1d(16, 16, 5, 2, 2), nn.ReLU(),
                                    nn.Flatten(), nn.Linear(16*samples//4, size), nn.ReLU())
        self.to_signal, self.to_report = nn.Linear(size, size), nn.Linear(size, size)
        for part in (self.reader.word, self.reader.blocks[0]): part.requires_grad_(False)
        self.reader.place.requires_grad_(False)

    def read(self, ids):
        with torch.set_grad_enabled(self.repaired and torch.is_grad_enabled()): return self.reader(ids)

    def forward(self, signal, ids):
        signal, report = self.to_signal(self.signal(signal)), self.to_report(self.read(ids))
        return F.normalize(signal, dim=1), F.normalize(report, dim=1)


def patients(n: int, shapes):
    "A report has a word for each finding; it is denied if the word before it says so."
    there = (torch.rand(n, findings) < .5)
    signal = .4*torch.randn(n, leads, samples) + (there.float() @ shapes.flatten(1)).view(n, leads, samples)
    order = torch.rand(n, findings).argsort(1)
    answer = torch.where(there.gather(1, order), torch.randint(10, 25, (n, 1)), torch.randint(25, 40, (n, 1)))
    return signal, torch.stack([answer, order], 2).flatten(1)


def contrast(model, batch):
    signal, report = model(*batch)
    alike, own = signal @ report.T/.07, torch.arange(len(signal))
    return (F.cross_entropy(alike, own) + F.cross_entropy(alike.T, own))/2


def build(repaired: bool) -> Parts:
    waves = (torch.linspace(0, 1, samples)*torch.randint(5, 40, (findings, 1, 1))).sin()
    shapes = torch.randn(findings, leads, 1)*waves
    model = HeartAndReport(32, repaired)
    data = [patients(32, shapes) for _ in range(70)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=2e-3), data, call=contrast,
                 valid=[patients(32, shapes) for _ in range(10)])


def train(parts: Parts, record) -> float:
    parts.model.train()
    with record.on(parts.model, parts.optimizer):
        for _ in range(3):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    with torch.no_grad(): found = [parts.call(parts.model, batch) for batch in parts.valid]
    return (torch.stack(found).mean()/torch.tensor(32.).log()).item()
