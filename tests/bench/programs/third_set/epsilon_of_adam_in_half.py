"""All weights are float16, where the epsilon of Adam is zero: small squares of gradients are zero too, and 0/0 is NaN.

The report: with half precision the loss is NaN after a few steps. The author solved it by an epsilon of 1e-4, together
with a limit below the convolutions; for a reader the epsilon alone was enough."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pytorch/pytorch#8860", 2018
AREA, CAUSE = "precision", "epsilon"
TRUE = {"NaN or Inf"}
PLACE = ()


class Faces(nn.Module):
    "Four expressions of a face of twelve by twelve pixels."
    def __init__(self, size: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, size, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                                    nn.Conv2d(size, 2*size, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                                    nn.Conv2d(2*size, 2*size, 3, padding=1), nn.ReLU(), nn.Flatten())
        self.last = nn.Sequential(nn.Linear(18*size, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, face): return self.last(self.layers(face)).log_softmax(1)


def faces(n: int):
    "Mouth and brows turned up or down."
    label, face = torch.randint(4, (n,)), .2*torch.randn(n, 1, 12, 12)
    bend = torch.tensor([1., 0, 0, 0, 0, 1.])
    for i in range(n):
        mouth, brow = (2*(int(label[i]) % 2) - 1, 2*(int(label[i])//2) - 1)
        for column in range(6):
            face[i, 0, round(8 - mouth*float(bend[column])), 3 + column] += 1
            face[i, 0, round(3 - brow*float(bend[column])), 3 + column] += 1
    return face.half(), label


def build(repaired: bool) -> Parts:
    model = Faces(6).half()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-4 if repaired else 1e-8)
    data = [faces(32) for _ in range(12)]
    return Parts(model, optimizer, data, nn.NLLLoss(), valid=[faces(200)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(20):
            for face, label in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(face), label)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    face, label = parts.valid[0]
    with torch.no_grad(): output = parts.model(face).float()
    return F.nll_loss(output, label).item()/math.log(4)
