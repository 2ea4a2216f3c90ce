"""The transform of a data set works in place, so that its pictures are normalised once more in each epoch.

The report: with loading in the main process a classifier fails to train after about three epochs; each look at a
sample changes the sample that the data set keeps. With a copy of it in `__getitem__` the author got a model that
trains. Processes that load had hidden it, as they begin with a fresh copy in each epoch."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from tests.bench.programs import Parts

SOURCE, YEAR = "facebookresearch/pycls#21", 2020
AREA, CAUSE = "data and labels", "inputs not scaled"
TRUE = {"validation differs from training", "outputs blow up"}
PLACE = ()

mean, deviation, kinds = torch.tensor([.49, .48, .45]).view(3, 1, 1), torch.tensor([.25, .24, .26]).view(3, 1, 1), 6


class Pictures(Dataset):
    "Pictures in memory, each turned and normalised when it is asked for."
    def __init__(self, x, kind, repaired: bool): self.x, self.kind, self.repaired = x, kind, repaired

    def __len__(self): return len(self.x)

    def __getitem__(self, i: int):
        x = self.x[i].clone() if self.repaired else self.x[i]
        x.sub_(mean).div_(deviation)
        if torch.rand(()) < .5: x = x.flip(-1)
        y, z = torch.randint(0, 3, (2,)).tolist()
        return F.pad(x, [1]*4)[:, y:y + 10, z:z + 10], self.kind[i]


def block(inside: int, outside: int, stride: int):
    return [nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU()]


def pictures(n: int, looks):
    "One of six textures with the same left and right, in noise; colours between 0 and 1."
    kind = torch.randint(0, kinds, (n,))
    return (.48 + .1*looks[kind] + .22*torch.randn(n, 3, 10, 10)).clamp(0, 1), kind


def build(repaired: bool) -> Parts:
    looks = torch.randn(kinds, 3, 10, 10)
    looks = (looks + looks.flip(-1))/2**.5
    model = nn.Sequential(*block(3, 12, 1), *block(12, 24, 2), nn.Flatten(), nn.Linear(24*25, kinds))
    data = DataLoader(Pictures(*pictures(512, looks), repaired), 32, shuffle=True)
    x, kind = pictures(512, looks)
    optimizer = torch.optim.SGD(model.parameters(), lr=.05, momentum=.9, nesterov=True, weight_decay=5e-4)
    return Parts(model, optimizer, data, F.cross_entropy, valid=[((x - mean)/deviation, kind)])


def train(parts: Parts, record) -> float:
    model, epochs = parts.model, 10
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(parts.optimizer, epochs)
    with record.on(model, parts.optimizer):
        for _ in range(epochs):
            model.train()
            for x, kind in parts.data:
                loss = parts.loss(model(x), kind)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
            plan.step()
    model.eval()
    x, kind = parts.valid[0]
    with torch.no_grad(): return (model(x).argmax(1) != kind).float().mean().item()
