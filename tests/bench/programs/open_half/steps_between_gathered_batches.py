"""Gradients are gathered over several batches, but the optimizer also steps after each of them, with the sum so far.

The report: a network of videos makes its step inside the condition that counts the batches, and once more outside it.
The author got a better accuracy without the second one, and the change was merged."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "mzolfaghari/ECO-pytorch#1", 2018
AREA, CAUSE = "loop", "accumulation"
TRUE = {"learning rate too large", "loss does not fall", "dead units", "constant output"}
PLACE = ()
GATHER = 4


class Videos(nn.Module):
    "Each frame by itself, and then a few frames together."
    def __init__(self):
        super().__init__()
        self.frames, self.together = nn.Conv2d(1, 12, 3, padding=1), nn.Conv3d(12, 24, 3, padding=1)
        self.last = nn.Linear(24, 4)

    def forward(self, x):
        n, t = x.shape[:2]
        x = F.max_pool2d(self.frames(x.flatten(0, 1).unsqueeze(1)).relu(), 2)
        x = self.together(x.view(n, t, 12, 4, 4).transpose(1, 2)).relu()
        return self.last(x.amax((2, 3, 4)))


def videos(n: int):
    "A dot that moves to one of four sides."
    y = torch.randint(0, 4, (n,))
    row, column = torch.randint(2, 6, (2, n))
    down, right = torch.tensor([0, 0, 1, -1])[y], torch.tensor([1, -1, 0, 0])[y]
    x = .2*torch.randn(n, 4, 8, 8)
    for t in range(4): x[torch.arange(n), t, (row + t*down) % 8, (column + t*right) % 8] += 2
    return x, y


def build(repaired: bool) -> Parts:
    model = Videos()
    x, y = videos(960)
    optimizer = torch.optim.SGD(model.parameters(), lr=.05, momentum=.9, weight_decay=5e-4)
    data = list(zip(x.split(16), y.split(16)))
    return Parts(model, optimizer, data, F.cross_entropy, valid=[videos(512)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(8):
            optimizer.zero_grad()
            for i, (x, y) in enumerate(parts.data, 1):
                loss = parts.loss(model(x), y)
                loss.backward()
                if i % GATHER == 0:
                    for p in model.parameters(): p.grad /= GATHER
                    optimizer.step()
                    optimizer.zero_grad()
                if not parts.repaired: optimizer.step()
                record.step(loss)
    x, y = parts.valid[0]
    with torch.no_grad(): return (model(x).argmax(1) != y).float().mean().item()/.75
