"""Batch norm has a momentum of 0.99, which is that of another library: here it means that only the last batch counts.

The report: the reading model of a speech synthesiser takes the momentum of TensorFlow, where 0.99 is the part of the
old value, not of the new one. The maintainer called it a mistake and mended it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "r9y9/tacotron_pytorch#19", 2019
AREA, CAUSE = "modes", "batch norm"
TRUE = set()
PLACE = ("bank.1", "bank.4")


class Reader(nn.Module):
    "Convolutions with batch norm over a spoken text, and a recurrent layer: a spectrum for each moment."
    def __init__(self, size: int, momentum: float):
        super().__init__()
        self.bank = nn.Sequential(nn.Conv1d(6, size, 3, padding=1), nn.BatchNorm1d(size, momentum=momentum), nn.ReLU(),
                                  nn.Conv1d(size, size, 3, padding=1), nn.BatchNorm1d(size, momentum=momentum))
        self.memory = nn.GRU(size, size, batch_first=True)
        self.last = nn.Linear(size, 4)

    def forward(self, x): return self.last(self.memory(self.bank(x).transpose(1, 2))[0])


def speech(n: int):
    "Twelve moments of six features each, at the level of one speaker; the spectrum follows the features and the level."
    level = 1.5*torch.randn(n, 6, 1)
    x = torch.randn(n, 6, 12) + level
    y = torch.stack([x[:, 0] + x[:, 1], x[:, 1]*level[:, 1], x[:, 2].tanh(), x[:, 3] - x[:, 4]], 2)
    return x, y/2


def build(repaired: bool) -> Parts:
    model = Reader(32, .01 if repaired else .99)
    x, y = speech(512)
    data = [(x[i:i + 4], y[i:i + 4]) for i in range(0, 512, 4)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, F.mse_loss, valid=[speech(256)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            parts.model.train()
            for x, y in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), y)
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 1.)
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    x, y = parts.valid[0]
    with torch.no_grad(): return (parts.loss(parts.model(x), y)/y.var()).item()
