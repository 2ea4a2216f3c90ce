"""The function that validates sets eval mode, and a few lines on train mode, before it runs the model.

The report: results of a model for several modalities differ, because validation calls `train()` after `eval()`. The
maintainers removed that call."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pliang279/MultiBench#26", 2023
AREA, CAUSE = "modes", "train mode"
TRUE = set()
PLACE = ()


class Fusion(nn.Module):
    "An encoder for each of two modalities, and a head on both codes."
    def __init__(self, size: int):
        super().__init__()
        self.sound = nn.GRU(4, size, batch_first=True)
        self.sight = nn.Sequential(nn.Linear(12, size), nn.BatchNorm1d(size), nn.ReLU(), nn.Dropout(.5))
        self.head = nn.Sequential(nn.Dropout(.5), nn.Linear(2*size, size), nn.ReLU(), nn.Dropout(.5),
                                  nn.Linear(size, 3))

    def forward(self, sound, sight):
        return self.head(torch.cat([self.sound(sound)[1][0], self.sight(sight)], 1))


def scenes(n: int):
    "Both modalities show a bit of the class."
    label = torch.randint(0, 3, (n,))
    sound, sight = torch.randn(n, 6, 4), torch.randn(n, 12)
    sound[:, :, 0] += label[:, None] - 1.
    sight[:, :4] += 1.2*F.one_hot(label, 4)
    return sound, sight, label


def build(repaired: bool) -> Parts:
    model = Fusion(24)
    all_of_it = scenes(768)
    data = list(zip(*(part.split(32) for part in all_of_it)))
    valid = list(zip(*(part.split(32) for part in scenes(512))))

    def call(model, batch): return F.cross_entropy(model(*batch[:2]), batch[2])

    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3), data, call=call, valid=valid,
                 repaired=repaired)


def validate(parts: Parts) -> float:
    parts.model.eval()
    with torch.no_grad():
        if not parts.repaired: parts.model.train()
        losses = [parts.call(parts.model, batch) for batch in parts.valid]
    return torch.stack(losses).mean().item()/math.log(3)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            parts.model.train()
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
            error = validate(parts)
    return error
