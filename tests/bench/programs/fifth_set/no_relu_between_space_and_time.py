"""A convolution over space is followed by one over time with nothing between them.

The report: the paper has a ReLU between the two halves of such a convolution, the module has none. The author added
it and thanked."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "proceduralia/pytorch-conv2_1d#2", 2018
AREA, CAUSE = "structure", "no non-linearity"
TRUE = set()
PLACE = ("layer", "layer.space", "layer.time")

frames, side = 8, 8


class SpaceAndTime(nn.Module):
    "A convolution of each frame, then one of each pixel over the frames."
    def __init__(self, inputs: int, middle: int, outputs: int, repaired: bool):
        super().__init__()
        self.space, self.time = nn.Conv2d(inputs, middle, 3, padding=1), nn.Conv1d(middle, outputs, 3, padding=1)
        self.repaired = repaired

    def forward(self, x):
        n, _, t, h, w = x.shape
        x = self.space(x.transpose(1, 2).flatten(0, 1))
        if self.repaired: x = F.relu(x)
        x = x.unflatten(0, (n, t)).permute(0, 3, 4, 2, 1).flatten(0, 2)
        return self.time(x).unflatten(0, (n, h, w)).permute(0, 3, 4, 1, 2)


class Clips(nn.Module):
    def __init__(self, repaired: bool):
        super().__init__()
        self.layer = SpaceAndTime(1, 8, 16, repaired)
        self.last = nn.Linear(16, 3)

    def forward(self, x): return self.last(F.relu(self.layer(x)).mean((2, 3, 4)))


def clips(n: int):
    "Sparks, bright or dark at random in each frame; the class is whether they last for one frame, two or three."
    y = torch.randint(0, 3, (n,))
    x, every = .2*torch.randn(n, 1, frames, side, side), torch.arange(n)
    for spark in range(6):
        at, start = torch.randint(0, side, (n, 2)), (torch.rand(n)*(frames - y)).long()
        for i in range(3):
            lasts = (i <= y) & (spark < 6//(y + 1))
            sign = torch.randint(0, 2, (n,))*2. - 1
            x[every, 0, (start + i).clamp(max=frames - 1), at[:, 0], at[:, 1]] += 3*sign*lasts
    return x, y


def build(repaired: bool) -> Parts:
    model = Clips(repaired)
    data = [clips(32) for _ in range(40)]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    return Parts(model, optimizer, data, F.cross_entropy, valid=[clips(300)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(5):
            parts.model.train()
            for x, y in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), y)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, y = parts.valid[0]
    with torch.no_grad(): return (parts.model(x).argmax(1) != y).float().mean().item()*1.5
