"""The gradients of a network that looks for the corners of a court are never cleared.

The report: there is no zero_grad in the trainer of a detector of court lines, so something must be wrong. The
maintainer answered that this is right and added it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "yastrebksv/TennisCourtDetector#7", 2024
AREA, CAUSE = "loop", "gradients not cleared"
TRUE = {"saturated", "constant output"}
PLACE = ()


class Corners(nn.Module):
    "A map for each of the four corners."
    def __init__(self):
        super().__init__()
        layers = []
        for size in (1, 16, 16): layers += [nn.Conv2d(size, 16, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(16)]
        self.body, self.last = nn.Sequential(*layers), nn.Conv2d(16, 4, 3, padding=1)

    def forward(self, x): return self.last(self.body(x)).sigmoid()


def courts(n: int):
    "The outline of a court on a noisy ground, and a soft dot at each of its corners."
    x, y, places = .3*torch.randn(n, 1, 14, 14), torch.zeros(n, 4, 14, 14), torch.arange(14)
    top, left, height, width = torch.randint(1, 5, (n,)), torch.randint(1, 5, (n,)), *torch.randint(4, 9, (2, n))
    for i, (a, b, c, d) in enumerate(torch.stack([top, left, top + height, left + width], 1).tolist()):
        x[i, 0, [a, c], b:d + 1] += 1
        x[i, 0, a + 1:c, [b, d]] += 1
        for k, (row, column) in enumerate([(a, b), (a, d), (c, b), (c, d)]):
            y[i, k] = torch.outer((-(places - row)**2/2).exp(), (-(places - column)**2/2).exp())
    return x, y


def build(repaired: bool) -> Parts:
    model = Corners()
    x, y = courts(512)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(.9, .999), weight_decay=0)
    data = list(zip(x.split(32), y.split(32)))
    return Parts(model, optimizer, data, F.mse_loss, valid=[courts(256)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(15):
            model.train()
            for x, y in parts.data:
                if parts.repaired: optimizer.zero_grad()
                loss = parts.loss(model(x), y)
                loss.backward()
                optimizer.step()
                record.step(loss)
    x, y = parts.valid[0]
    model.eval()
    with torch.no_grad(): return (parts.loss(model(x), y)/y.var()).item()
