"""Steps are made where the count has a remainder, so with a setting of one, which means each batch, none is made.

The report: a detector of objects gathers gradients, but steps with all batches except each Nth, and with N of one it
never does. The repair turns the condition round; a change that does so was merged."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "eriklindernoren/PyTorch-YOLOv3#325", 2019
AREA, CAUSE = "loop", "no step"
TRUE = {"loss does not fall", "not trained", "no zero_grad"}
PLACE = ()
GATHER = 1


class Detector(nn.Module):
    "For each of 4 by 4 cells: whether a thing has its middle there, where in the cell, and of which kind."
    def __init__(self, kinds: int):
        super().__init__()
        def block(before, after):
            return nn.Sequential(nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after),
                                 nn.LeakyReLU(.1), nn.MaxPool2d(2))
        self.body, self.head = nn.Sequential(block(1, 16), block(16, 32)), nn.Conv2d(32, 3 + kinds, 1)

    def forward(self, x): return self.head(self.body(x)).movedim(1, -1)


def scenes(n: int):
    "One cross or one square in a noisy picture."
    x = .3*torch.randn(n, 1, 16, 16)
    row, column, kind = torch.randint(1, 15, (n,)), torch.randint(1, 15, (n,)), torch.randint(0, 2, (n,))
    target = torch.zeros(n, 4, 4, 4)
    for i in range(n):
        r, c = int(row[i]), int(column[i])
        x[i, 0, r - 1:r + 2, c - 1:c + 2] += 1.5
        if kind[i]: x[i, 0, r - 1:r + 2:2, c - 1:c + 2:2] -= 1.5
        target[i, r//4, c//4] = torch.tensor([1, (r % 4 + .5)/4, (c % 4 + .5)/4, int(kind[i])])
    return x, target


def loss_of(output, target):
    there = target[..., 0] == 1
    found = F.binary_cross_entropy_with_logits(output[..., 0], target[..., 0])
    place = F.mse_loss(output[there][:, 1:3].sigmoid(), target[there][:, 1:3])
    return 10*found + place + F.cross_entropy(output[there][:, 3:], target[there][:, 3].long())


def build(repaired: bool) -> Parts:
    model = Detector(2)
    x, target = scenes(640)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), list(zip(x.split(16), target.split(16))),
                 loss_of, valid=[scenes(256)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    done = 0
    with record.on(model, optimizer):
        for _ in range(3):
            model.train()
            for x, target in parts.data:
                done += 1
                loss = parts.loss(model(x), target)
                loss.backward()
                if (done % GATHER == 0) if parts.repaired else (done % GATHER):
                    optimizer.step()
                    optimizer.zero_grad()
                record.step(loss)
    model.eval()
    x, target = parts.valid[0]
    with torch.no_grad(): output = model(x)
    cell = target[..., 0].flatten(1).argmax(1)
    right = (output[..., 0].flatten(1).argmax(1) == cell) & \
        (output.flatten(1, 2)[torch.arange(len(x)), cell, 3:].argmax(1) == target[..., 3].flatten(1).amax(1))
    return 1 - right.float().mean().item()
