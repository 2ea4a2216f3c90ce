"""The illnesses of patients are looked up by the names of codes after the names have become numbers, so none is found.

The report: all labels of the dataset are zero. The maintainer answered that the labels were added after the codes had
been converted, and that the code is changed."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "btheodorou99/HALO_Inpatient#13", 2024
AREA, CAUSE = "data and labels", "constant targets"
TRUE = set()
PLACE = ()

names = [f"I{i:02}" for i in range(24)]
number = {name: i for i, name in enumerate(names)}
illnesses = [set(names[i:i + 3]) for i in range(0, 12, 3)]


class Records(nn.Module):
    "The codes of the next visit and the illnesses of the patient, after each visit."
    def __init__(self):
        super().__init__()
        self.visits = nn.GRU(24, 48, batch_first=True)
        self.last = nn.Linear(48, 28)

    def forward(self, visits): return self.last(self.visits(visits)[0])


def patients(n: int):
    "Five visits each, with three codes, which mostly follow from those before."
    made = []
    for first in torch.randint(24, (n, 3)).tolist():
        visits = [first]
        for _ in range(4):
            visits.append([(code + 5) % 24 if chance < .8 else other for code, chance, other in
                           zip(visits[-1], torch.rand(3).tolist(), torch.randint(24, (3,)).tolist())])
        made.append([[names[code] for code in visit] for visit in visits])
    return made


def dataset(records, repaired: bool):
    "Visits as vectors, and after each visit the codes of the next one and the illnesses so far."
    inputs, targets = torch.zeros(len(records), 4, 24), torch.zeros(len(records), 4, 28)
    for i, named in enumerate(records):
        visits = [[number[code] for code in visit] for visit in named]
        for j in range(4):
            inputs[i, j, visits[j]] = 1
            targets[i, j, visits[j + 1]] = 1
            past = {code for visit in (named if repaired else visits)[:j + 1] for code in visit}
            targets[i, j, 24:] = torch.tensor([float(bool(past & illness)) for illness in illnesses])
    return inputs, targets


def build(repaired: bool) -> Parts:
    model = Records()
    inputs, targets = dataset(patients(1024), repaired)
    data = [(inputs[i:i + 32], targets[i:i + 32]) for i in range(0, 1024, 32)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, F.binary_cross_entropy_with_logits,
                 valid=[dataset(patients(512), True)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(10):
            for visits, targets in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(visits), targets)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    visits, targets = parts.valid[0]
    with torch.no_grad(): said = parts.model(visits)[:, -1, 24:] > 0
    ill = targets[:, -1, 24:].bool()
    return ((said != ill).float().mean()/torch.min(ill.float().mean(), 1 - ill.float().mean())).item()
