"""Two views of a picture are to have equal codes, whose numbers say different things; no labels and no negatives.

Habits of the source: the loss is a sum over a table of correlations, made in place; the codes are normalised over the
batch by a norm without weights; an optimizer of its own that scales each step of a weight to the size of the weight,
which leaves biases and norms out; two groups with different rates, both set in each step, and zero in the first one; a
projector of which only the body is kept; residual branches begin at zero; heavy augmentation.
Error of a linear classifier on the frozen body's features, on pictures held back: .16 to .24; on the untrained body
.84."""
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from tests.bench.programs import Parts

SOURCE, YEAR = "facebookresearch/barlowtwins main.py", 2021
EPOCHS, BATCH, SIDE, KINDS = 8, 64, 16, 6


class Block(nn.Module):
    def __init__(self, c, d):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(c, d, 3, 2, 1, bias=False), nn.BatchNorm2d(d), nn.ReLU(inplace=True),
                                  nn.Conv2d(d, d, 3, 1, 1, bias=False), nn.BatchNorm2d(d))
        self.short = nn.Sequential(nn.Conv2d(c, d, 1, 2, bias=False), nn.BatchNorm2d(d))
        nn.init.zeros_(self.body[-1].weight)

    def forward(self, x): return F.relu(self.body(x) + self.short(x), inplace=True)


class Twins(nn.Module):
    def __init__(self, size=64):
        super().__init__()
        self.body = nn.Sequential(Block(1, 12), Block(12, 24), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.projector = nn.Sequential(nn.Linear(96, size, bias=False), nn.BatchNorm1d(size), nn.ReLU(inplace=True),
                                       nn.Linear(size, size, bias=False))
        self.norm = nn.BatchNorm1d(size, affine=False)

    def forward(self, a, b):
        table = self.norm(self.projector(self.body(a))).T @ self.norm(self.projector(self.body(b)))
        table.div_(len(a))
        off = table.flatten()[:-1].view(len(table) - 1, -1)[:, 1:]
        return torch.diagonal(table).add_(-1).pow_(2).sum() + .0051*off.flatten().pow_(2).sum()


class LARS(torch.optim.Optimizer):
    def __init__(self, params, weight_decay=1e-6, momentum=.9, trust=.02):
        super().__init__(params, {"lr": 0, "weight_decay": weight_decay, "momentum": momentum, "trust": trust})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None: continue
                step = p.grad
                if p.ndim > 1:
                    step = step.add(p, alpha=group["weight_decay"])
                    if p.norm() > 0 and step.norm() > 0: step = step*(group["trust"]*p.norm()/step.norm())
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                mean.mul_(group["momentum"]).add_(step)
                p.add_(mean, alpha=-group["lr"])


def pictures(n):
    "One of six textures of stripes: three directions, narrow or wide."
    kind, places = torch.randint(KINDS, (n,)), torch.arange(SIDE)
    angle, width = (kind % 3)*math.pi/3 + .2*torch.randn(n), 1.1 - .5*(kind // 3) + .05*torch.randn(n)
    phase = (angle.cos()*width)[:, None, None]*places[:, None] + (angle.sin()*width)[:, None, None]*places
    return (phase + 6.3*torch.rand(n, 1, 1)).sin()[:, None] + .7*torch.randn(n, 1, SIDE, SIDE), kind


def view(x):
    top, left = torch.randint(0, 5, (2,)).tolist()
    x = F.interpolate(x[None, :, top:top + 12, left:left + 12], size=SIDE, mode="bilinear")[0]
    if torch.rand(()) < .8: x = x*(.6 + .8*torch.rand(())) + .4*torch.randn(())
    if torch.rand(()) < .2: x = torch.where(x > 1, -x, x)
    return x + .2*torch.randn_like(x)


class Views(Dataset):
    def __init__(self, x): self.x = x

    def __len__(self): return len(self.x)

    def __getitem__(self, i): return view(self.x[i]), view(self.x[i])


def build(repaired: bool) -> Parts:
    model = Twins()
    few = [p for p in model.parameters() if p.ndim == 1]
    optimizer = LARS([{"params": [p for p in model.parameters() if p.ndim > 1]}, {"params": few}])
    data = DataLoader(Views(pictures(512)[0]), BATCH, shuffle=True, drop_last=True)
    return Parts(model, optimizer, data, call=lambda model, batch: model(*batch),
                 valid=DataLoader(Views(pictures(128)[0]), BATCH))


def linear_error(body):
    "Of a classifier on frozen features."
    body.eval()
    (x, y), (new, true), head = pictures(300), pictures(300), nn.Sequential(nn.BatchNorm1d(96), nn.Linear(96, KINDS))
    with torch.no_grad(): x, new = body(x), body(new)
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-2, weight_decay=1e-4)
    for _ in range(200):
        optimizer.zero_grad()
        F.cross_entropy(head(x), y).backward()
        optimizer.step()
    return (head.eval()(new).argmax(1) != true).float().mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer, batches = parts.model, parts.optimizer, len(parts.data)
    warm, whole = 2*batches, EPOCHS*batches
    model.train()
    with record.on(model, optimizer):
        for epoch in range(EPOCHS):
            for step, batch in enumerate(parts.data, start=epoch*batches):
                after = (1 + math.cos(math.pi*(step - warm)/(whole - warm)))/2
                rate = step/warm if step < warm else after + .001*(1 - after)
                optimizer.param_groups[0]["lr"], optimizer.param_groups[1]["lr"] = .2*rate, .0048*rate
                optimizer.zero_grad()
                loss = parts.call(model, batch)
                loss.backward()
                optimizer.step()
                record.step(loss)
    return linear_error(model.body)
