"""Recurrent cells are kept in a list, so the optimizer gets the last layer only.

The report: the weights of the LSTM cells do not change. A reader found that they are not among the model's parameters;
the author confirmed that registering them mends it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "ikostrikov/pytorch-meta-optimizer#11", 2019
AREA, CAUSE = "parameters", "not registered"
TRUE = {"loss does not fall", "cannot learn by heart", "learning rate too small"}
PLACE = ("cells",)


class Memory(nn.Module):
    "Two cells on top of each other, and a last layer on the last state."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        cells = [nn.LSTMCell(3, size), nn.LSTMCell(size, size)]
        self.cells = nn.ModuleList(cells) if repaired else cells
        self.last = nn.Linear(size, 1)

    def forward(self, x):
        states = [None, None]
        for step in x.unbind(1):
            for i, cell in enumerate(self.cells):
                states[i] = cell(step, states[i])
                step = states[i][0]
        return self.last(step)


def signals(n: int):
    "Short signals of three channels; the target is the first number where a later one is above zero."
    x = torch.randn(n, 6, 3)
    return x, (2*x[:, 0, :1]).tanh()*(x[:, 5, 1:2] > 0)


def build(repaired: bool) -> Parts:
    model = Memory(24, repaired)
    x, y = signals(1024)
    data = [(x[i:i + 64], y[i:i + 64]) for i in range(0, 1024, 64)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-2), data, F.mse_loss, valid=[signals(512)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(12):
            for x, y in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), y)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, y = parts.valid[0]
    with torch.no_grad(): return (parts.loss(parts.model(x), y)/y.var()).item()
