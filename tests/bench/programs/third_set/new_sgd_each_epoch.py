"""The optimizer is made anew in each epoch, so that its momentum begins at zero again and again.

The report: the tutorial for transfer learning makes a new SGD in each epoch. Its reader finds that the momentum of the
last epoch is lost; a maintainer agrees, and the change that keeps one optimizer was merged."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pytorch/tutorials#61", 2017
AREA, CAUSE = "optimizer and schedule", "optimizer made anew"
TRUE = {"learning rate too small"}
PLACE = ()


def net(size: int) -> nn.Module:
    "A body and a new last layer."
    return nn.Sequential(nn.Conv2d(3, size, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(size, 2*size, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(8*size, 2))


def insects(n: int):
    "Ants are three dark spots in a row, and bees are striped, before a lively ground."
    y = torch.randint(0, 2, (n,))
    x = .7*torch.randn(n, 3, 8, 8)
    for i, bee in enumerate(y.tolist()):
        row, column = torch.randint(0, 3, (2,)).tolist()
        for k in range(3):
            if bee: x[i, :2, row + 2*k:row + 2*k + 1, column:column + 5] += .5
            else: x[i, :, row + 2*k:row + 2*k + 1, column:column + 3] -= .5
    return x, y


def build(repaired: bool) -> Parts:
    model = net(8)
    x, y = insects(192)
    optimizer = torch.optim.SGD(model.parameters(), lr=.007, momentum=.9)
    return Parts(model, optimizer, list(zip(x.split(24), y.split(24))), F.cross_entropy, valid=[insects(512)],
                 repaired=repaired)


def rate(epoch: int) -> float: return .007*.1**(epoch // 7)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    for epoch in range(25):
        if parts.repaired:
            for group in optimizer.param_groups: group["lr"] = rate(epoch)
        else: optimizer = torch.optim.SGD(model.parameters(), lr=rate(epoch), momentum=.9)
        with record.on(model, optimizer):
            for x, y in parts.data:
                optimizer.zero_grad()
                loss = parts.loss(model(x), y)
                loss.backward()
                optimizer.step()
                record.step(loss)
    x, y = parts.valid[0]
    with torch.no_grad(): return (model(x).argmax(1) != y).float().mean().item()/.5
