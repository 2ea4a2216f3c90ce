"""The gradients are cleared between backward and step, so the optimizer finds none.

The report: the learning rate does not seem to warm up. The maintainer of the warm-up found something else in the loop
that was shown: zero_grad comes after backward, and the parameters are not optimised at all."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "Tony-Y/pytorch_warmup#12", 2022
AREA, CAUSE = "loop", "step before backward"
TRUE = {"not trained", "loss does not fall"}
PLACE = ()


def letters(n: int, shapes):
    "One of eight letters, in another strength and a little moved, on a noisy ground."
    y, strength = torch.randint(0, 8, (n,)), .5 + torch.rand(n, 1, 1, 1)
    x = strength*shapes[y].unsqueeze(1)
    right, down = torch.rand(n, 1, 1, 1) < .5, torch.rand(n, 1, 1, 1) < .5
    x = torch.where(right, x.roll(1, 3), x)
    return torch.where(down, x.roll(1, 2), x) + .3*torch.randn(n, 1, 10, 10), y


def build(repaired: bool) -> Parts:
    model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 32), nn.ReLU(),
                          nn.Linear(32, 8))
    shapes = F.pad((torch.rand(8, 7, 7) < .4).float(), (1, 2, 1, 2))
    x, y = letters(1024, shapes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=.01)
    data = list(zip(x.split(64), y.split(64)))
    return Parts(model, optimizer, data, F.cross_entropy, valid=[letters(512, shapes)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer, steps = parts.model, parts.optimizer, 15*len(parts.data)
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, .05, total_iters=40)
    cool_down = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    with record.on(model, optimizer):
        for _ in range(15):
            for x, y in parts.data:
                if parts.repaired: optimizer.zero_grad()
                loss = parts.loss(model(x), y)
                loss.backward()
                if not parts.repaired: optimizer.zero_grad()
                optimizer.step()
                cool_down.step()
                warm_up.step()
                record.step(loss)
    x, y = parts.valid[0]
    with torch.no_grad(): return (model(x).argmax(1) != y).float().mean().item()/.875
