"""The loss is computed and its gradients are not: `backward` is never called.

The report: a user who reads the training of a face detector asks where the gradients come from, as no `backward` is
called between the loss and the step. The author apologises and adds it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "Goingqs/PyramidBox#7", 2018
AREA, CAUSE = "loop", "step before backward"
TRUE = {"not trained", "no step", "loss does not fall"}
PLACE = ()


class Faces(nn.Module):
    "A pyramid of two scales; each place of both says whether a face is there, and where its edges are."
    def __init__(self, size: int):
        super().__init__()
        self.fine = nn.Sequential(nn.Conv2d(1, size, 3, 2, 1), nn.ReLU(),
                                  nn.Conv2d(size, size, 3, padding=1), nn.ReLU())
        self.coarse = nn.Sequential(nn.Conv2d(size, size, 3, 2, 1), nn.ReLU())
        self.score = nn.ModuleList(nn.Conv2d(size, 2, 3, padding=1) for _ in range(2))
        self.box = nn.ModuleList(nn.Conv2d(size, 4, 3, padding=1) for _ in range(2))

    def forward(self, x):
        fine = self.fine(x)
        levels = fine, self.coarse(fine)
        def flat(layers): return torch.cat([f(x).flatten(2) for f, x in zip(layers, levels)], 2).transpose(1, 2)
        return flat(self.box), flat(self.score)


def centers():
    "The places of both scales, in pixels."
    return torch.cat([torch.cartesian_prod(*[torch.arange(16//s)*float(s) + s/2]*2) for s in (2, 4)])


def images(n: int):
    "A face is a bright square with two dark eyes."
    size = torch.randint(4, 9, (n,))
    at = (torch.rand(n, 2)*(16 - size).unsqueeze(1)).long()
    x = .3*torch.randn(n, 1, 16, 16)
    for i, ((row, column), s) in enumerate(zip(at.tolist(), size.tolist())):
        x[i, 0, row:row + s, column:column + s] += 1.5
        x[i, 0, row + s//3, [column + s//4, column + s - 1 - s//4]] -= 2
    low, high = at.unsqueeze(1), (at + size.unsqueeze(1)).unsqueeze(1)
    away = torch.cat([centers() - low, high - centers()], 2)/4
    return x, away, (away.min(2).values > .25).long()


def boxes(model, batch):
    x, away, face = batch
    box, score = model(x)
    of_boxes = F.smooth_l1_loss(box[face == 1], away[face == 1])
    return of_boxes + F.cross_entropy(score.flatten(0, 1), face.flatten())


def build(repaired: bool) -> Parts:
    model = Faces(12)
    optimizer = torch.optim.SGD(model.parameters(), lr=.05, momentum=.9, weight_decay=5e-4)
    data = list(zip(*(part.split(32) for part in images(960))))
    return Parts(model, optimizer, data, call=boxes, valid=[images(256)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(6):
            for batch in parts.data:
                optimizer.zero_grad()
                loss = parts.call(model, batch)
                if parts.repaired: loss.backward()
                optimizer.step()
                record.step(loss)
    with torch.no_grad(): return parts.call(model, parts.valid[0]).item()
