"""A slip in what initialises batch norm: the scale is set to one, and then the scale again, not the shift, to zero.

The report: a reader asks about two lines for batch norm, the second of which should name the shift. The maintainer
answered that it should, and mended it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "kazuto1011/deeplab-pytorch#44", 2018
AREA, CAUSE = "initialisation", "weights too small"
TRUE = {"dead units", "constant output", "units alike", "input unused", "loss does not fall", "cannot learn by heart"}
PLACE = ("features.1", "features.4", "pyramid.0.1", "pyramid.1.1", "pyramid.2.1")


def initialise(model: nn.Module, repaired: bool):
    for module in model.modules():
        if isinstance(module, nn.Conv2d): nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        if isinstance(module, nn.BatchNorm2d):
            nn.init.constant_(module.weight, 1)
            nn.init.constant_(module.bias if repaired else module.weight, 0)


def stage(before: int, after: int, apart: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=apart, dilation=apart, bias=False),
                         nn.BatchNorm2d(after), nn.ReLU())


class Segmenter(nn.Module):
    "Convolutions of three widths side by side decide what each pixel is."
    def __init__(self, size: int, classes: int):
        super().__init__()
        self.features = nn.Sequential(*stage(3, size), *stage(size, size))
        self.pyramid = nn.ModuleList(stage(size, size, apart) for apart in (1, 2, 4))
        self.last = nn.Conv2d(3*size, classes, 1)

    def forward(self, x):
        x = self.features(x)
        return self.last(torch.cat([branch(x) for branch in self.pyramid], 1))


def images(n: int):
    "The left part of an image has one texture and the right part another; they meet anywhere."
    row, column = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
    textures = torch.stack([row % 2, column % 2, (row + column) % 2]).float()*2 - 1
    kind = torch.rand(n, 3).argsort(1)[:, :2]
    border = torch.randint(4, 13, (n, 1, 1))
    mask = torch.where(column < border, kind[:, :1, None], kind[:, 1:, None])
    x = textures[:, None].expand(-1, n, -1, -1).permute(1, 0, 2, 3).gather(1, mask[:, None])
    return x + .7*torch.randn(n, 3, 16, 16), mask


def build(repaired: bool) -> Parts:
    model = Segmenter(12, 3)
    initialise(model, repaired)
    x, mask = images(256)
    data = [(x[i:i + 16], mask[i:i + 16]) for i in range(0, 256, 16)]
    optimizer = torch.optim.SGD(model.parameters(), lr=.05, momentum=.9, weight_decay=5e-4)
    return Parts(model, optimizer, data, F.cross_entropy, valid=[images(128)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            parts.model.train()
            for x, mask in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), mask)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    x, mask = parts.valid[0]
    with torch.no_grad(): return (parts.model(x).argmax(1) != mask).float().mean().item()*1.5
