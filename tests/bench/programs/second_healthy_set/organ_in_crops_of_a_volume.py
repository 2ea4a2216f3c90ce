"""A net of three dimensions marks a small organ in noisy volumes.

Habits of the source: crops for training are centred on the organ half of the time, though it fills little of the
volume; several crops of one volume make a batch; densities far from those of interest are cut off and the rest is
scaled to 0 to 1; the overlap itself is the loss, over both classes; residual units and PReLU; tests take one whole
volume at a time in overlapping windows, every second epoch, and keep the best weights.
Error: one less the Dice overlap of the organ in a third set of volumes: .3 to .4; untrained .9."""
from copy import deepcopy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from tests.bench.programs import Parts

SOURCE, YEAR = "Project-MONAI/tutorials 3d_segmentation/spleen_segmentation_3d.ipynb", 2020
SIDE, CROP = 16, 8


class Unit(nn.Module):
    def __init__(self, c, d, stride=1):
        super().__init__()
        self.body = nn.Sequential(nn.Conv3d(c, d, 3, stride, 1), nn.BatchNorm3d(d), nn.PReLU(),
                                  nn.Conv3d(d, d, 3, 1, 1), nn.BatchNorm3d(d), nn.PReLU())
        self.short = nn.Conv3d(c, d, 3, stride, 1)

    def forward(self, x): return self.body(x) + self.short(x)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.bottom = Unit(1, 6, 2), Unit(6, 12)
        self.up = nn.Sequential(nn.ConvTranspose3d(18, 8, 3, 2, 1, output_padding=1), nn.BatchNorm3d(8), nn.PReLU())
        self.last = nn.Conv3d(8, 2, 3, padding=1)

    def forward(self, x):
        x = self.down(x)
        return self.last(self.up(torch.cat([x, self.bottom(x)], 1)))


def dice_loss(output, label, small=1e-5):
    found, true = output.softmax(1), F.one_hot(label[:, 0], 2).movedim(-1, 1).float()
    over = 2, 3, 4
    return (1 - (2*(found*true).sum(over) + small)/(found.sum(over) + true.sum(over) + small)).mean()


class Volumes(Dataset):
    "Densities from -200 to 300; the organ is an ellipsoid of medium density with another one, brighter, elsewhere."
    def __init__(self, n, crops=0):
        self.crops, places = crops, torch.stack(torch.meshgrid(*[torch.arange(SIDE)]*3, indexing="ij"), -1)
        x, self.y = -120 + 20*torch.randn(n, SIDE, SIDE, SIDE), torch.zeros(n, SIDE, SIDE, SIDE).long()
        for i in range(n):
            for value in (220, 60):
                middle, size = torch.randint(4, SIDE - 4, (3,)), 3 + 2*torch.rand(3)
                inside = (((places - middle)/size)**2).sum(-1) <= 1
                x[i][inside] += 120 + value
                self.y[i][inside] = int(value == 60)
        self.x = ((x + 160)/(164 + 160)).clamp(0, 1)

    def __len__(self): return len(self.x)

    def __getitem__(self, i):
        x, y, made = self.x[i, None], self.y[i, None], []
        if not self.crops: return x, y
        for _ in range(self.crops):
            choice = y[0].nonzero() if torch.rand(()) < .5 else (1 - y[0]).nonzero()
            middle = choice[torch.randint(len(choice), ())]
            part = [slice(a, a + CROP) for a in (middle - CROP // 2).clamp(0, SIDE - CROP).tolist()]
            made.append((x[:, *part], y[:, *part]))
        return [torch.stack(side) for side in zip(*made)]


def crops_together(items): return [torch.cat(side) for side in zip(*items)]


def build(repaired: bool) -> Parts:
    model = UNet()
    data = DataLoader(Volumes(30, crops=4), 2, shuffle=True, collate_fn=crops_together)
    return Parts(model, torch.optim.Adam(model.parameters(), 1e-2), data, dice_loss, valid=DataLoader(Volumes(8), 1))


def dice(model, loader):
    "Mean of the volumes, each from windows that overlap."
    model.eval()
    found, steps = [], range(0, SIDE - CROP + 1, CROP // 2)
    for x, y in loader:
        total = torch.zeros(1, 2, SIDE, SIDE, SIDE)
        with torch.no_grad():
            for a in steps:
                for b in steps:
                    for c in steps:
                        at = ..., slice(a, a + CROP), slice(b, b + CROP), slice(c, c + CROP)
                        total[at] += model(x[at])
        organ = total.argmax(1, keepdim=True)
        found.append(2*(organ*y).sum()/(organ.sum() + y.sum()))
    return torch.stack(found).mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer, best, kept = parts.model, parts.optimizer, -1, None
    with record.on(model, optimizer):
        for epoch in range(12):
            model.train()
            for x, y in parts.data:
                optimizer.zero_grad()
                loss = parts.loss(model(x), y)
                loss.backward()
                optimizer.step()
                record.step(loss)
            if (epoch + 1) % 2 == 0:
                reached = dice(model, parts.valid)
                if reached > best: best, kept = reached, deepcopy(model.state_dict())
    model.load_state_dict(kept)
    return 1 - dice(model, DataLoader(Volumes(8), 1))
