"""The networks of a regressor of time series return a column, the targets are a row, and the loss takes all pairs.

The report: four networks end in a linear layer with one output, the base class has flat targets, and torch warns of two
sizes. The change, which flattens the output before the loss, was merged."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "sktime/sktime#10932", 2026
AREA, CAUSE = "loss and task", "labels broadcast"
TRUE = {"constant output", "samples alike"}
PLACE = ("last",)


class Convolutions(nn.Module):
    "Three convolutions, a mean over time and one number."
    def __init__(self, channels: int, sizes=(24, 32, 24), kernels=(8, 5, 3)):
        super().__init__()
        layers = []
        for size, kernel in zip(sizes, kernels):
            layers += [nn.Conv1d(channels, size, kernel, padding="same"), nn.BatchNorm1d(size), nn.ReLU()]
            channels = size
        self.body, self.last = nn.Sequential(*layers), nn.Linear(channels, 1)

    def forward(self, x): return self.last(self.body(x).mean(2))


def series(n: int):
    "Two channels of waves; the target depends on how fast the first is and how strong the second."
    speed, strength = .2 + torch.rand(n, 1), .3 + torch.rand(n, 1)
    time = torch.arange(32.)
    first = (speed*time + 6*torch.rand(n, 1)).sin()
    second = strength*(.7*time + 6*torch.rand(n, 1)).sin()
    x = torch.stack([first, second], 1) + .2*torch.randn(n, 2, 32)
    return x, (3*speed - 2*strength).squeeze(1) + .1*torch.randn(n)


def build(repaired: bool) -> Parts:
    model = Convolutions(2)

    def loss(output, target):
        if repaired and output.ndim == 2 and output.shape[1] == 1 and target.ndim == 1: output = output.squeeze(-1)
        return F.mse_loss(output, target)

    x, y = series(480)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3)
    return Parts(model, optimizer, list(zip(x.split(16), y.split(16))), loss, valid=[series(256)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(8):
            model.train()
            for x, y in parts.data:
                loss = parts.loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
    x, y = parts.valid[0]
    model.eval()
    with torch.no_grad(): return (F.mse_loss(model(x).squeeze(-1), y)/y.var()).item()
