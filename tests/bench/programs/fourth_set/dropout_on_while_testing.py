"""The network that solves the task has dropout and batch norm, and is tested in the mode in which it is trained.

The report: in a method that chooses what to label, the function that tests does not put the network, a VGG with batch
norm and dropout, into eval mode. The author of the code called the remark completely right and added the line."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "sinhasam/vaal#2", 2019
AREA, CAUSE = "modes", "train mode"
TRUE = set()
PLACE = ()
classes = 5
looks = torch.randn(classes, 1, 4, 4, generator=torch.Generator().manual_seed(6))


def network():
    return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(16, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(96, 48), nn.ReLU(), nn.Dropout(.5), nn.Linear(48, 48), nn.ReLU(),
                         nn.Dropout(.5), nn.Linear(48, classes))


def images(n: int):
    y = torch.randint(classes, (n,))
    return F.interpolate(looks, scale_factor=2.)[y].roll(1, 3) + 2.2*torch.randn(n, 1, 8, 8), y


def build(repaired: bool) -> Parts:
    model = network()
    x, y = images(640)
    optimizer = torch.optim.SGD(model.parameters(), lr=.02, momentum=.9, weight_decay=5e-4)
    data = list(zip(x.split(32), y.split(32)))
    return Parts(model, optimizer, data, F.cross_entropy, valid=[images(256), images(512)], repaired=repaired)


def wrong(model, batch, repaired: bool) -> float:
    if repaired: model.eval()
    x, y = batch
    with torch.no_grad():
        answers = torch.cat([model(some).argmax(1) for some in x.split(32)])
    return (answers != y).float().mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer, best, least = parts.model, parts.optimizer, None, 2.
    with record.on(model, optimizer):
        for step in range(300):
            if step == 220:
                for group in optimizer.param_groups: group["lr"] /= 10
            model.train()
            x, y = parts.data[step % len(parts.data)]
            loss = parts.loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            record.step(loss)
            if step % 50 == 49:
                error = wrong(model, parts.valid[0], parts.repaired)
                if error < least: best, least = copy.deepcopy(model), error
    return wrong(best, parts.valid[1], parts.repaired)*classes/(classes - 1)
