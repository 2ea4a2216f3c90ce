"""Adam is replaced by gradient descent and its small learning rate is kept.

The report: a detector of centres does not converge with SGD, and the loss of the sizes does not go down. The
maintainer answered that SGD needs a much larger rate than Adam, such as 0.02."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "xingyizhou/CenterNet#706", 2020
AREA, CAUSE = "optimizer and schedule", "learning rate too small"
TRUE = set()
PLACE = ()


class Centres(nn.Module):
    "A map of centres, and the width of a thing at each place."
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 24, 5, padding=2), nn.BatchNorm2d(24), nn.ReLU(),
                                  nn.Conv2d(24, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU())
        self.centre, self.width = nn.Conv2d(24, 1, 1), nn.Conv2d(24, 1, 1)
        nn.init.constant_(self.centre.bias, -2.19)

    def forward(self, x):
        x = self.body(x)
        return self.centre(x), self.width(x)


SHAPES = torch.tensor([[[0, 1, 0], [1, 1, 1], [0, 1, 0]], [[1, 0, 1], [0, 1, 0], [1, 0, 1]],
                       [[1, 1, 1], [0, 0, 0], [1, 1, 1]], [[1, 0, 1], [1, 0, 1], [1, 0, 1]]]).float()


def scenes(n: int):
    "Four shapes, one in each quarter; the upright cross is looked for. Its brightness stands for its size."
    x, heat, width = .5*torch.randn(n, 1, 12, 12), torch.zeros(n, 1, 12, 12), .5 + torch.rand(n)
    for i, order in enumerate(torch.rand(n, 4).argsort(1).tolist()):
        for quarter, shape in enumerate(order):
            row, column = (6*torch.tensor([quarter//2, quarter % 2]) + torch.randint(0, 4, (2,))).tolist()
            x[i, 0, row:row + 3, column:column + 3] += (width[i] + .5)*SHAPES[shape]
            if shape == 0: heat[i, 0, row + 1, column + 1] = 1
    return x, (heat, width)


def focal_and_width(output, target):
    (centre, size), (heat, width) = output, target
    p = centre.sigmoid().clamp(1e-4, 1 - 1e-4)
    focal = heat*(1 - p)**2*p.log() + (1 - heat)*p**2*(1 - p).log()
    return -focal.sum()/heat.sum() + .1*F.l1_loss((size*heat).sum((1, 2, 3)), width)


def build(repaired: bool) -> Parts:
    model = Centres()
    x, (heat, width) = scenes(512)
    data = [(x[i:i + 32], (heat[i:i + 32], width[i:i + 32])) for i in range(0, 512, 32)]
    optimizer = torch.optim.SGD(model.parameters(), lr=.02 if repaired else 1.25e-4)
    return Parts(model, optimizer, data, focal_and_width, valid=[scenes(256)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(12):
            for x, target in parts.data:
                loss = parts.loss(parts.model(x), target)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, (heat, _) = parts.valid[0]
    parts.model.eval()
    with torch.no_grad(): found = parts.model(x)[0].flatten(1).argmax(1)
    return (found != heat.flatten(1).argmax(1)).float().mean().item()
