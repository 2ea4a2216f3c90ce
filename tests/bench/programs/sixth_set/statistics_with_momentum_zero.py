"""Batch norm should gather new statistics for the averaged weights, but has a momentum of zero, so it gathers none.

The report: a residual network has an accuracy of about 0 after a training with averaged weights, and .75 without them.
The callback that averages sets the momentum of each norm to 0 instead of None before the last pass. The author of the
report found it by comparing with the function of torch, and gave the change that mends it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "Lightning-AI/pytorch-lightning#14866", 2022
AREA, CAUSE = "modes", "batch norm"
TRUE = {"statistics stay behind"}
PLACE = ("first.1", "blocks.0.1", "blocks.0.4", "blocks.1.1", "blocks.1.4")


class Residual(nn.Module):
    def __init__(self, classes: int, size: int = 16):
        super().__init__()
        def block():
            return nn.Sequential(nn.Conv2d(size, size, 3, padding=1), nn.BatchNorm2d(size), nn.ReLU(),
                                 nn.Conv2d(size, size, 3, padding=1), nn.BatchNorm2d(size))
        self.first = nn.Sequential(nn.Conv2d(3, size, 3, padding=1), nn.BatchNorm2d(size), nn.ReLU())
        self.blocks = nn.ModuleList(block() for _ in range(2))
        self.last = nn.Linear(size, classes)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks: x = F.max_pool2d((x + block(x)).relu(), 2)
        return self.last(x.mean((2, 3)))


def pictures(n: int, patterns):
    y = torch.randint(len(patterns), (n,))
    return 2 + patterns[y] + 1.5*torch.randn(n, 3, 8, 8), y


def build(repaired: bool) -> Parts:
    model, patterns = Residual(8), F.interpolate(torch.randn(8, 3, 4, 4), scale_factor=2)
    x, y = pictures(768, patterns)
    optimizer = torch.optim.SGD(model.parameters(), lr=.05, momentum=.9, weight_decay=1e-4)
    return Parts(model, optimizer, list(zip(x.split(32), y.split(32))), F.cross_entropy,
                 valid=[pictures(512, patterns)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    average, count = None, 0
    with record.on(model, optimizer):
        for epoch in range(6):
            model.train()
            for x, y in parts.data:
                loss = parts.loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
            if epoch < 3: continue
            now, count = [p.detach().clone() for p in model.parameters()], count + 1
            average = now if average is None else [old + (new - old)/count for old, new in zip(average, now)]
    with torch.no_grad():
        for p, value in zip(model.parameters(), average): p.copy_(value)
        gather(parts)
        model.eval()
        x, y = parts.valid[0]
        return (model(x).argmax(1) != y).float().mean().item()*8/7


def gather(parts: Parts):
    "One more pass over the data, for the statistics of the norms."
    norms = [layer for layer in parts.model.modules() if isinstance(layer, nn.BatchNorm2d)]
    kept = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None if parts.repaired else 0.
    parts.model.train()
    for x, _ in parts.data: parts.model(x)
    for norm, momentum in zip(norms, kept): norm.momentum = momentum
