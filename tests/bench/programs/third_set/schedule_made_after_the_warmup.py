"""The schedule is made after the warm-up, and takes the first rate of the warm-up for the full one.

The report: the rate after the warm-up depends on the number of its steps. The object for the warm-up divides the rate
of the optimizer as soon as it is made, and the schedule, which is made next, keeps this as its own. The author of the
package confirms: the schedule has to be made first."""
import contextlib

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "Tony-Y/pytorch_warmup#26", 2024
AREA, CAUSE = "optimizer and schedule", "schedule does not fit"
TRUE = {"learning rate too small", "loss does not fall"}
PLACE = ()
WARM, EPOCHS = 60, 10


class Warmup:
    "Holds the rate of another schedule down at first."
    def __init__(self, optimizer, steps: int):
        self.optimizer, self.steps, self.step, self.full = optimizer, steps, 0, optimizer.param_groups[0]["lr"]
        self.damp()

    def damp(self):
        self.step += 1
        self.optimizer.param_groups[0]["lr"] = self.full*min(1, self.step/self.steps)

    @contextlib.contextmanager
    def damping(self):
        self.optimizer.param_groups[0]["lr"] = self.full
        yield
        self.full = self.optimizer.param_groups[0]["lr"]
        self.damp()


def net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(16*4, 64), nn.ReLU(), nn.Linear(64, 10))


def digits(n: int, strokes):
    "Noisy and shifted copies of ten drawings."
    y = torch.randint(0, 10, (n,))
    shift = torch.randint(-1, 2, (n,)).tolist()
    x = torch.stack([torch.roll(strokes[k], s, 1) for k, s in zip(y.tolist(), shift)])
    return (x + .6*torch.randn(x.shape)).unsqueeze(1), y


def build(repaired: bool) -> Parts:
    model, strokes = net(), (torch.rand(10, 8, 8) < .4).float()
    x, y = digits(1280, strokes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=.01)
    return Parts(model, optimizer, list(zip(x.split(64), y.split(64))), F.cross_entropy, valid=[digits(512, strokes)],
                 repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer, steps = parts.model, parts.optimizer, EPOCHS*len(parts.data)
    def schedule_of(): return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0, 1 - step/steps))
    if parts.repaired: schedule, warmup = schedule_of(), Warmup(optimizer, WARM)
    else: warmup, schedule = Warmup(optimizer, WARM), schedule_of()
    with record.on(model, optimizer):
        for _ in range(EPOCHS):
            model.train()
            for x, y in parts.data:
                optimizer.zero_grad()
                loss = parts.loss(model(x), y)
                loss.backward()
                optimizer.step()
                with warmup.damping(): schedule.step()
                record.step(loss)
    model.eval()
    x, y = parts.valid[0]
    with torch.no_grad(): return (model(x).argmax(1) != y).float().mean().item()/.9
