"""The decoder of a network for segmentation is the reversed list of the encoder's layers: the same ones, not new ones.

The report is a merged change: the list is copied, but its elements are the same objects, so many layers, batch norms
above all, are in the network twice. The owner of the code thanked for the correction."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "yassouali/pytorch-segmentation#159", 2023
AREA, CAUSE = "structure", "layers shared by mistake"
TRUE = {"batch norm"}
PLACE = ("encoder.3", "encoder.4", "encoder.10", "encoder.11", "encoder.13", "encoder.14")

kinds = 4


def block(before: int, after: int): return [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]


class Segmenter(nn.Module):
    "Pooling remembers from where each number comes, and unpooling puts it there again."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        wide = 2*size
        stages = [[*block(3, size), *block(size, size)],
                  [*block(size, wide), *block(wide, wide), *block(wide, wide)]]
        self.encoder = nn.ModuleList([*stages[0], nn.MaxPool2d(2, return_indices=True), *stages[1],
                                      nn.MaxPool2d(2, return_indices=True)])
        self.decoder = nn.ModuleList([*self.mirror(stages[1], repaired), *self.mirror(stages[0], repaired)])
        self.unpool, self.last = nn.MaxUnpool2d(2), nn.Conv2d(3, kinds, 3, padding=1)

    @staticmethod
    def mirror(stage, repaired: bool):
        "The layers of a stage from behind; those that change the number of channels are made anew."
        found = []
        for i in reversed(range(0, len(stage), 3)):
            conv, norm, relu = copy.deepcopy(stage[i:i + 3]) if repaired else stage[i:i + 3]
            if conv.in_channels != conv.out_channels:
                conv, norm = block(conv.out_channels, conv.in_channels)[:2]
            found += [conv, norm, relu]
        return found

    def forward(self, x):
        places = []
        for layer in self.encoder:
            x = layer(x)
            if isinstance(x, tuple): places.append(x[1])
            if isinstance(x, tuple): x = x[0]
        for i, layer in enumerate(self.decoder):
            if i in (0, 9): x = self.unpool(x, places.pop())
            x = layer(x)
        return self.last(x)


def scenes(n: int):
    "Squares of three colours on a background."
    x, kind = .3*torch.randn(n, 3, 12, 12), torch.zeros(n, 12, 12, dtype=torch.long)
    for i, colour in enumerate(torch.eye(3)):
        for j, (top, left) in enumerate(torch.randint(0, 7, (n, 2)).tolist()):
            kind[j, top:top + 5, left:left + 5] = i + 1
            x[j, :, top:top + 5, left:left + 5] = colour[:, None, None] + .3*torch.randn(3, 5, 5)
    return x, kind


def build(repaired: bool) -> Parts:
    model = Segmenter(8, repaired)
    data = [scenes(6) for _ in range(250)]
    return Parts(model, torch.optim.SGD(model.parameters(), lr=.1, momentum=.9, weight_decay=1e-4), data,
                 F.cross_entropy, valid=[scenes(100)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for x, kind in parts.data:
            parts.optimizer.zero_grad()
            loss = parts.loss(parts.model(x), kind)
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    x, kind = parts.valid[0]
    parts.model.eval()
    with torch.no_grad(): return (parts.loss(parts.model(x), kind)/torch.tensor(float(kinds)).log()).item()
