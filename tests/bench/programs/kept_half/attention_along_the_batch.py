"""A transformer gets its batches with the samples first and was not told so, so the samples attend to each other.

The report: high losses in training and test of an exercise. With `batch_first=True` both go down in the figures of the
report; the owner of the exercise agreed."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "Exorust/TorchLeet#5", 2025
AREA, CAUSE = "structure", "samples leak"
TRUE = set()
PLACE = ("encoder",)


class Reader(nn.Module):
    "Reads a sequence and says one number at its last place."
    def __init__(self, features: int, size: int, repaired: bool):
        super().__init__()
        self.first = nn.Linear(features, size)
        layer = nn.TransformerEncoderLayer(size, 4, 2*size, dropout=0., **({"batch_first": True} if repaired else {}))
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.last = nn.Linear(size, 1)

    def forward(self, x): return self.last(self.encoder(self.first(x))[:, -1])


def sequences(n: int):
    "The target is the sum of all numbers of a sequence."
    x = torch.rand(n, 10, 2)
    return x, x.sum((1, 2))[:, None] - 10


def build(repaired: bool) -> Parts:
    model = Reader(2, 32, repaired)
    x, y = sequences(800)
    data = [(x[i:i + 50], y[i:i + 50]) for i in range(0, 800, 50)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-3), data, F.mse_loss, valid=[sequences(400)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(12):
            for x, y in parts.data:
                loss = parts.loss(parts.model(x), y)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, y = parts.valid[0]
    with torch.no_grad(): return (parts.loss(parts.model(x), y)/y.var()).item()
