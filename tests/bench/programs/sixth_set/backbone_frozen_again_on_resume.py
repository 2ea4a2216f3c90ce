"""A run that goes on after its backbone was unfrozen freezes it again, and waits for an epoch that is past.

The report, on a trainer for satellite pictures: the callback freezes a part of the model when a run is restored and
never unfreezes it. The maintainers merged the change."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "allenai/rslearn#199", 2025
AREA, CAUSE = "parameters", "frozen part"
TRUE = {"not trained"}
PLACE = ("backbone",)

bands, side, classes = 4, 12, 5
restored_epoch, unfreeze_epoch, epochs = 3, 2, 9


class FreezeUnfreeze:
    "Freezes a part until an epoch."
    def __init__(self, part, repaired: bool): self.part, self.repaired = part, repaired

    def starts(self): self.part.requires_grad_(False)

    def epoch_starts(self, epoch: int):
        if epoch == unfreeze_epoch or self.repaired and epoch > unfreeze_epoch: self.part.requires_grad_(True)


class Cover(nn.Module):
    "What covers each field of a picture."
    def __init__(self, size: int):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(bands, size, 3, padding=1), nn.ReLU(),
                                      nn.Conv2d(size, size, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                                      nn.Conv2d(size, size, 3, padding=1), nn.ReLU())
        self.head = nn.Conv2d(size, classes, 1)

    def forward(self, x): return self.head(self.backbone(x))


def pictures(n: int):
    "Fields of two by two pixels: the difference of two bands across a field tells what covers it, its level does not."
    kind = torch.randint(classes, (n, side//2, side//2))
    level = torch.randn(n, bands, side//2, side//2).repeat_interleave(2, 2).repeat_interleave(2, 3)
    tilt = (kind - 2.)[:, None].repeat_interleave(2, 2)
    x = .5*level + .3*torch.randn(n, bands, side, side)
    x[:, :2, :, ::2] += .6*tilt
    x[:, :2, :, 1::2] -= .6*tilt
    return x, kind


def build(repaired: bool) -> Parts:
    model = Cover(24)
    data = [pictures(16) for _ in range(25)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=2e-3), data, F.cross_entropy, valid=[pictures(128)],
                 repaired=repaired)


def train(parts: Parts, record) -> float:
    freezer = FreezeUnfreeze(parts.model.backbone, parts.repaired)
    freezer.starts()
    with record.on(parts.model, parts.optimizer):
        for epoch in range(restored_epoch, epochs):
            freezer.epoch_starts(epoch)
            for x, kind in parts.data:
                loss = parts.loss(parts.model(x), kind)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, kind = parts.valid[0]
    with torch.no_grad(): return (parts.loss(parts.model(x), kind)/torch.tensor(float(classes)).log()).item()
