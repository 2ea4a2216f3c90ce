"""Gradients are cleared once at the start of an epoch, not before each batch, so each step takes the sum so far.

The report: in the lab on convolutional networks of a course, `zero_grad` stands before the loop over the batches. The
author of the course answered that it is a mistake, found it in several labs and corrected them all."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "heartcored98/Standalone-DeepLearning#11", 2020
AREA, CAUSE = "loop", "gradients not cleared"
TRUE = {"learning rate too large", "loss does not fall", "gradients explode"}
PLACE = ()


class Pictures(nn.Module):
    "Two blocks of a convolution and pooling, and two linear layers."
    def __init__(self, classes: int):
        super().__init__()
        def block(before, after):
            return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.blocks = nn.Sequential(block(3, 16), block(16, 32))
        self.head = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Dropout(.1), nn.Linear(64, classes))

    def forward(self, x): return self.head(self.blocks(x).flatten(1))


def pictures(n: int, patterns):
    "A small pattern of colours of one class, anywhere in a noisy picture."
    y = torch.randint(len(patterns), (n,))
    x = .8*torch.randn(n, 3, 8, 8)
    for i, (row, column) in enumerate(torch.randint(0, 6, (n, 2)).tolist()):
        x[i, :, row:row + 3, column:column + 3] += patterns[y[i]]
    return x, y


def build(repaired: bool) -> Parts:
    model, patterns = Pictures(6), 1.2*torch.randn(6, 3, 3, 3)
    x, y = pictures(1024, patterns)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, weight_decay=1e-5)
    return Parts(model, optimizer, list(zip(x.split(32), y.split(32))), F.cross_entropy,
                 valid=[pictures(512, patterns)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(8):
            model.train()
            optimizer.zero_grad()
            for x, y in parts.data:
                if parts.repaired: optimizer.zero_grad()
                loss = parts.loss(model(x), y)
                loss.backward()
                optimizer.step()
                record.step(loss)
    model.eval()
    x, y = parts.valid[0]
    with torch.no_grad(): return (model(x).argmax(1) != y).float().mean().item()*6/5
