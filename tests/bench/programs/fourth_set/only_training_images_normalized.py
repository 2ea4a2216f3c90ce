"""The learner puts a normalization into the batches for training, and leaves those for validation as they are.

The report: with the option that normalizes, and loaders without it, the images of the validation set keep the range of
0 to 1. The author of the report found that a change in the repository mends it, which was not released yet."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "fastai/fastai#3281", 2021
AREA, CAUSE = "data and labels", "validation differs from training"
TRUE = set()
PLACE = ()

kinds = 6
mean, deviation = torch.tensor([.485, .456, .406]), torch.tensor([.229, .224, .225])


def conv(inputs: int, outputs: int, stride: int = 1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


class Residual(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.path = nn.Sequential(conv(size, size), conv(size, size))

    def forward(self, x): return x + self.path(x)


def learner(size: int):
    body = nn.Sequential(conv(3, size), Residual(size), conv(size, 2*size, 2), Residual(2*size))
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.BatchNorm1d(2*size), nn.Dropout(.25),
                         nn.Linear(2*size, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Linear(32, kinds))
    return nn.Sequential(body, head)


def pets(n: int, coats):
    "Small images in the range of 0 to 1: a coat with a pattern of its own, in some light."
    label = torch.randint(0, kinds, (n,))
    shift = torch.randint(0, 4, (n,))
    coat = torch.stack([coats[k].roll(int(s), 2) for k, s in zip(label, shift)])
    light = .3 + .3*torch.rand(n, 3, 1, 1)
    return (light + .18*coat.repeat(1, 1, 3, 3) + .15*torch.randn(n, 3, 12, 12)).clamp(0, 1), label


def normalized(batch): return (batch[0] - mean[:, None, None])/deviation[:, None, None], batch[1]


def build(repaired: bool) -> Parts:
    coats, model = torch.randn(kinds, 3, 4, 4), learner(12)
    data = [normalized(pets(32, coats)) for _ in range(25)]
    valid = [pets(400, coats)]
    if repaired: valid = [normalized(batch) for batch in valid]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, F.cross_entropy, valid=valid)


def train(parts: Parts, record) -> float:
    plan = torch.optim.lr_scheduler.OneCycleLR(parts.optimizer, 5e-3, 4*len(parts.data))
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            parts.model.train()
            for image, label in parts.data:
                loss = parts.loss(parts.model(image), label)
                loss.backward()
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                plan.step()
                record.step(loss)
    parts.model.eval()
    image, label = parts.valid[0]
    with torch.no_grad(): return (parts.model(image).argmax(1) != label).float().mean().item()
