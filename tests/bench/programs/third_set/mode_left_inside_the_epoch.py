"""The test inside an epoch leaves the model in eval mode, and the rest of the epoch is trained without dropout.

The report: a network for segmentation is set to training mode at the start of each epoch and tested after so many steps
within it. The loss behaves in another way when an epoch begins. A user found unpredictable results to come from it, and
the author of the code set the mode back after the test."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "wkentaro/pytorch-fcn#57", 2017
AREA, CAUSE = "modes", "eval mode"
TRUE = set()
PLACE = ()
EVERY = 5


class Segment(nn.Module):
    "Convolutions down to few places, two wide layers with dropout, and up again."
    def __init__(self, size: int, classes: int):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, size, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                                  nn.Conv2d(size, 2*size, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.wide = nn.Sequential(nn.Conv2d(2*size, 128, 3, padding=1), nn.ReLU(), nn.Dropout2d(.5),
                                  nn.Conv2d(128, 128, 1), nn.ReLU(), nn.Dropout2d(.5))
        self.score, self.up = nn.Conv2d(128, classes, 1), nn.ConvTranspose2d(classes, classes, 8, 4, 2, bias=False)

    def forward(self, x): return self.up(self.score(self.wide(self.down(x))))


def scenes(n: int):
    "Ground with a patch of one of two textures; some of the labels are drawn wrong."
    kind, at = torch.randint(1, 3, (n,)), torch.randint(0, 3, (n, 2))
    x, y = torch.randn(n, 1, 16, 16), torch.zeros(n, 16, 16, dtype=torch.long)
    wave = (torch.arange(8) % 2)*2. - 1
    for i, (row, column) in enumerate((4*at).tolist()):
        pattern = wave.view(1, -1) if kind[i] == 1 else wave.view(-1, 1)
        x[i, 0, row:row + 8, column:column + 8] += 1.2*pattern
        y[i, row:row + 8, column:column + 8] = kind[i] if torch.rand(()) < .75 else 3 - kind[i]
    return x, y


def build(repaired: bool) -> Parts:
    model = Segment(8, 3)
    x, y = scenes(40)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return Parts(model, optimizer, list(zip(x.split(4), y.split(4))), F.cross_entropy, valid=[scenes(64)],
                 repaired=repaired)


def tested(parts: Parts) -> float:
    parts.model.eval()
    x, y = parts.valid[0]
    with torch.no_grad(): return parts.loss(parts.model(x), y).item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(75):
            model.train()
            for i, (x, y) in enumerate(parts.data):
                if i % EVERY == 0:
                    tested(parts)
                    if parts.repaired: model.train()
                optimizer.zero_grad()
                loss = parts.loss(model(x), y)
                loss.backward()
                optimizer.step()
                record.step(loss)
    return tested(parts)
