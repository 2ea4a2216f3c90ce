"""The test of a net that counts people runs in train mode, with one image at a time.

The report: the test script does not call `eval()`, which changes nothing for the net of the authors, and much for a
residual net with batch norm, which the author of the report uses. The maintainers added the call."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "cvlab-stonybrook/DM-Count#3", 2020
AREA, CAUSE = "modes", "train mode"
TRUE = set()
PLACE = ()


class Block(nn.Module):
    "Two convolutions with batch norm, beside a way around them."
    def __init__(self, size: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(size, size, 3, padding=1, bias=False), nn.BatchNorm2d(size), nn.ReLU(),
                                    nn.Conv2d(size, size, 3, padding=1, bias=False), nn.BatchNorm2d(size))

    def forward(self, x): return F.relu(x + self.layers(x))


class Density(nn.Module):
    "How many heads there are at each place."
    def __init__(self, size: int):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, size, 3, 2, 1, bias=False), nn.BatchNorm2d(size), nn.ReLU())
        self.blocks = nn.Sequential(Block(size), Block(size))
        self.last = nn.Sequential(nn.Conv2d(size, size, 3, padding=1), nn.ReLU(), nn.Conv2d(size, 1, 1))

    def forward(self, image): return self.last(self.blocks(self.first(image))).abs()[:, 0]


def crowds(n: int):
    "Few or many bright heads, and how many of them are at each of 8 x 8 places."
    crowded = .3*torch.rand(n, 1, 1)**2
    heads = (torch.rand(n, 16, 16) < crowded).float()
    image = heads[:, None] + .5*F.avg_pool2d(heads[:, None], 3, 1, 1) + .1*torch.randn(n, 1, 16, 16)
    return image, 4*F.avg_pool2d(heads, 2)


def count_loss(output, heads):
    "Of the number of heads, and of where they are."
    number, wanted = output.sum((1, 2)), heads.sum((1, 2))
    share, there = output/(number[:, None, None] + 1e-6), heads/(wanted[:, None, None] + 1e-6)
    return F.l1_loss(number, wanted) + 2*((share - there).abs().sum((1, 2))*wanted).mean()/10


def build(repaired: bool) -> Parts:
    image, heads = crowds(400)
    model = Density(8)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-4),
                 list(zip(image.split(16), heads.split(16))), count_loss,
                 valid=list(zip(*(part.split(1) for part in crowds(64)))), repaired=repaired)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            parts.model.train()
            for image, heads in parts.data:
                loss = parts.loss(parts.model(image), heads)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    if parts.repaired: parts.model.eval()
    wanted = torch.stack([heads.sum() for _, heads in parts.valid])
    with torch.no_grad(): found = torch.stack([parts.model(image).sum() for image, _ in parts.valid])
    return ((found - wanted).abs().mean()/(wanted - wanted.mean()).abs().mean()).item()
