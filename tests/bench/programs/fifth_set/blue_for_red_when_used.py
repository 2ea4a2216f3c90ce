"""A detector is trained on pictures in the order red, green, blue, and is asked about pictures in the reverse order.

The report is the merged change: the step before inference handed on the picture as the library that reads it gives
it, blue first, while training turns the order. With the order of training the precision on a public set of pictures
rises by 3.4 points to the published figure, measured by the author."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "CondadosAI/modern-yolonas#7", 2026
AREA, CAUSE = "data and labels", "validation differs from training"
TRUE = set()
PLACE = ()

kinds = 5


class Detector(nn.Module):
    "For each cell of a grid: whether the middle of a thing is there, and which thing."
    def __init__(self, wide: int):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.SiLU(),
                                  nn.Conv2d(wide, wide, 3, 2, 1), nn.BatchNorm2d(wide), nn.SiLU(),
                                  nn.Conv2d(wide, wide, 3, 2, 1), nn.BatchNorm2d(wide), nn.SiLU())
        self.head = nn.Conv2d(wide, 1 + kinds, 1)

    def forward(self, x): return self.head(self.body(x))


def detection_loss(output, target):
    there = (target > 0).float()
    found = F.binary_cross_entropy_with_logits(output[:, 0], there)
    return found + F.cross_entropy(output[:, 1:], target - 1, ignore_index=-1)


def read(n: int, colours):
    "Bytes as the reader gives them, blue first: one thing in each picture, on grass and sky."
    kind, at = torch.randint(0, kinds, (n,)), torch.randint(0, 4, (n, 2))
    x = torch.tensor([200., 120., 60.]).view(1, 3, 1, 1).repeat(n, 1, 16, 16)
    x[:, :, 8:] = torch.tensor([40., 140., 80.]).view(1, 3, 1, 1)
    target = torch.zeros(n, 4, 4, dtype=torch.long)
    for i, (y, z) in enumerate(at.tolist()):
        x[i, :, 4*y:4*y + 4, 4*z:4*z + 4] = colours[kind[i]].view(3, 1, 1)
        target[i, y, z] = kind[i] + 1
    return (x + 25*torch.randn_like(x)).clamp(0, 255), target


def prepare(x, turned: bool): return (x.flip(1) if turned else x)/255


def build(repaired: bool) -> Parts:
    colours, model = 255*torch.rand(kinds, 3), Detector(16)
    data = [(prepare(x, True), target) for x, target in (read(16, colours) for _ in range(48))]
    x, target = read(256, colours)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-4)
    return Parts(model, optimizer, data, detection_loss, valid=[(prepare(x, repaired), target)])


def train(parts: Parts, record) -> float:
    model = parts.model
    with record.on(model, parts.optimizer):
        for _ in range(4):
            model.train()
            for x, target in parts.data:
                loss = parts.loss(model(x), target)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    model.eval()
    x, target = parts.valid[0]
    with torch.no_grad(): output = model(x)
    at = output[:, 0].flatten(1).argmax(1)
    said = output[:, 1:].flatten(2).argmax(1).gather(1, at[:, None]) + 1
    return (said != target.flatten(1).gather(1, at[:, None])).float().mean().item()
