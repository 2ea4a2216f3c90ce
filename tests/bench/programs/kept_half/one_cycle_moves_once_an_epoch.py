"""A schedule of one cycle is made for all batches of the run and called once an epoch, so the rate stays at its start.

The report: in a recogniser of speech the schedules with cycles were called per epoch, though they count iterations.
The merged change calls them after each iteration."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "espnet/espnet#3319", 2021
AREA, CAUSE = "optimizer and schedule", "schedule never moves"
TRUE = {"learning rate too small"}
PLACE = ()
EPOCHS = 16


class Speech(nn.Module):
    "Convolutions over time; one of six sounds or none for each frame."
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(8, 48, 5, padding=2), nn.ReLU(), nn.Conv1d(48, 48, 5, padding=2), nn.ReLU())
        self.last = nn.Linear(48, 7)

    def forward(self, x): return self.last(self.body(x.transpose(1, 2)).transpose(1, 2)).log_softmax(2)


def speech(n: int, sounds):
    "Four sounds of four frames, each with two frames of noise behind it, and their names."
    names = torch.randint(1, 7, (n, 4))
    x = F.pad(sounds[names - 1], (0, 0, 0, 2)).flatten(1, 2)
    return x + .5*torch.randn_like(x), names


def ctc(output, names):
    frames, length = torch.full((len(names),), output.shape[1]), torch.full((len(names),), names.shape[1])
    return F.ctc_loss(output.transpose(0, 1), names, frames, length)


def build(repaired: bool) -> Parts:
    model, sounds = Speech(), torch.randn(6, 4, 8)
    x, names = speech(640, sounds)
    data = list(zip(x.split(32), names.split(32)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    return Parts(model, optimizer, data, ctc, valid=[speech(256, sounds)], repaired=repaired)


def spelled(path) -> list: return [name for name in path.unique_consecutive().tolist() if name]


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=EPOCHS*len(parts.data) + 1)
    with record.on(model, optimizer):
        for _ in range(EPOCHS):
            for x, names in parts.data:
                optimizer.zero_grad()
                loss = parts.loss(model(x), names)
                loss.backward()
                optimizer.step()
                if parts.repaired: schedule.step()
                record.step(loss)
            if not parts.repaired: schedule.step()
    x, names = parts.valid[0]
    with torch.no_grad(): paths = model(x).argmax(2)
    return sum(spelled(path) != right for path, right in zip(paths, names.tolist()))/len(names)
