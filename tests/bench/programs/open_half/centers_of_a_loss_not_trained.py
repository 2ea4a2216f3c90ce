"""The centers that a loss draws the features to are parameters of the loss, and no optimizer has them.

The report: the center loss stays large and changes without a direction. One of those who had the problem found that the
parameters of the loss have to be given to an optimizer, and a reader says the same."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "KaiyangZhou/pytorch-center-loss#11", 2019
AREA, CAUSE = "parameters", "not in the optimizer"
TRUE = set()
PLACE = ()

kinds, features = 8, 3


class Embedding(nn.Module):
    "A few features of a picture, and a layer for the classes."
    def __init__(self, size: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, size, 3, stride=2), nn.PReLU(), nn.Conv2d(size, size, 3), nn.PReLU(),
                                    nn.Flatten(), nn.Linear(9*size, features))
        self.last = nn.Linear(features, kinds)

    def forward(self, x):
        x = self.layers(x)
        return x, self.last(x)


class CenterLoss(nn.Module):
    "How far the features are from the center of their class."
    def __init__(self):
        super().__init__()
        self.centers = nn.Parameter(torch.randn(kinds, features))

    def forward(self, x, kind): return (x - self.centers[kind]).pow(2).sum(1).mean()


def pictures(n: int, looks):
    kind = torch.randint(0, kinds, (n,))
    return looks[kind] + 1.2*torch.randn(n, 1, 12, 12), kind


def build(repaired: bool) -> Parts:
    looks = F.interpolate(torch.randn(kinds, 1, 4, 4), 12)
    model, centers = Embedding(12), CenterLoss()
    optimizers = [torch.optim.SGD(model.parameters(), lr=.02, momentum=.9, weight_decay=5e-4)]
    if repaired: optimizers.append(torch.optim.SGD(centers.parameters(), lr=.5))

    def loss(output, kind):
        found, scores = output
        return F.cross_entropy(scores, kind) + centers(found, kind)
    data = [pictures(64, looks) for _ in range(40)]
    return Parts(model, optimizers, data, loss, valid=[pictures(500, looks)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            for x, kind in parts.data:
                loss = parts.loss(parts.model(x), kind)
                for optimizer in parts.optimizer: optimizer.zero_grad()
                loss.backward()
                for optimizer in parts.optimizer: optimizer.step()
                record.step(loss)
    x, kind = parts.valid[0]
    with torch.no_grad(): found, scores = parts.model(x)
    return (F.cross_entropy(scores, kind)/torch.tensor(float(kinds)).log()).item()
