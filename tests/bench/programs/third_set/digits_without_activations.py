"""A LeNet is made of convolutions, pooling and linear layers, with no activation between them.

The report asks whether it is right that there is no non-linearity. The owner of the code remembers that the forward
pass had them, does not know how they went missing, and puts them back."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "rasbt/deeplearning-models#38", 2020
AREA, CAUSE = "structure", "no non-linearity"
TRUE = set()
PLACE = ("classifier.0", "classifier.2", "classifier.4")

kinds = 2


class LeNet(nn.Module):
    def __init__(self, repaired: bool):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), *([nn.Tanh()] if repaired else []), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5, padding=2), *([nn.Tanh()] if repaired else []), nn.MaxPool2d(2))
        self.classifier = nn.Sequential(
            nn.Linear(16*2*7, 60), *([nn.Tanh()] if repaired else []),
            nn.Linear(60, 40), *([nn.Tanh()] if repaired else []), nn.Linear(40, kinds))

    def forward(self, x): return self.classifier(self.features(x).flatten(1))


def marks(n: int):
    "A stroke at either end, rising or falling; the class says whether they are alike."
    rises = torch.rand(n, 2) < .5
    stroke = torch.stack([torch.eye(6).flip(0), torch.eye(6)])
    x = .2*torch.randn(n, 1, 8, 28)
    for end in range(2):
        top, left = torch.randint(0, 2, (2, n)).tolist()
        for i, up in enumerate(rises[:, end].tolist()):
            x[i, 0, top[i]:top[i] + 6, 19*end + left[i]:19*end + left[i] + 6] += 2*stroke[int(up)]
    return x, (rises[:, 0] == rises[:, 1]).long()


def build(repaired: bool) -> Parts:
    model = LeNet(repaired)
    x, y = marks(2000)
    data = list(zip(x.split(25), y.split(25)))
    return Parts(model, torch.optim.Adam(model.parameters(), lr=4e-3), data, F.cross_entropy, valid=[marks(400)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(5):
            for x, kind in parts.data:
                loss = parts.loss(parts.model(x), kind)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, kind = parts.valid[0]
    with torch.no_grad(): return (parts.model(x).argmax(1) != kind).float().mean().item()*kinds/(kinds - 1)
