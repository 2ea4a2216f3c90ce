"""The mask of the real events becomes its opposite when it is made into numbers, so attention sees the padding only.

The report: with one of two implementations of attention the loss does not go down. The function that makes a bias of
the mask put minus infinity where the mask is true; the author of the merged change says that the model trains with it,
and did not learn at all before."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "neuro-galaxy/torch_brain#74", 2025
AREA, CAUSE = "structure", "mask ignored"
TRUE = {"loss does not fall", "cannot learn by heart", "constant output", "input unused", "not trained"}
PLACE = ("reader",)

units, places = 16, 24


class Reader(nn.Module):
    "A few learned queries look at events of which the last ones are padding."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.query = nn.Parameter(torch.randn(4, size)/size**.5)
        self.key, self.value = nn.Linear(size, size), nn.Linear(size, size)

    def forward(self, events, real):
        bias = torch.zeros(real.shape).masked_fill(~real if self.repaired else real, float("-inf"))
        scores = self.query @ self.key(events).transpose(1, 2)/events.shape[-1]**.5
        return (scores + bias[:, None]).softmax(-1) @ self.value(events)


class Decoder(nn.Module):
    "Which unit fired when, made into a movement."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.unit, self.time = nn.Embedding(units + 1, size, padding_idx=0), nn.Linear(1, size)
        self.reader = Reader(size, repaired)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(4*size, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, unit, time):
        return self.head(self.reader(self.unit(unit) + self.time(time[..., None]), unit > 0))


def recordings(n: int, direction):
    "Up to 22 events; the movement is the mean of what the units stand for, of which later events count more."
    real = torch.arange(places) < torch.randint(8, 23, (n, 1))
    unit = torch.randint(1, units + 1, (n, places))*real
    time = torch.rand(n, places).sort(1).values*real
    movement = (direction[unit]*time[..., None]).sum(1)/real.sum(1, keepdim=True)
    return unit, time, 4*movement


def build(repaired: bool) -> Parts:
    direction = torch.cat([torch.zeros(1, 2), F.normalize(torch.randn(units, 2))])
    model = Decoder(32, repaired)
    data = [recordings(64, direction) for _ in range(40)]

    def call(model, batch):
        unit, time, movement = batch
        return F.mse_loss(model(unit, time), movement)
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3), data, call=call,
                 valid=[recordings(512, direction)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad(): return (parts.call(parts.model, parts.valid[0])/parts.valid[0][2].var()).item()
