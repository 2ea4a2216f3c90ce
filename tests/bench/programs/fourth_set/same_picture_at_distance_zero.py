"""The contrastive loss takes the root of the squared distance, whose gradient is NaN where both samples are the same.

The report: the loss for pairs suddenly has NaN gradients. The reporter had the same sample twice in the data and added
a small number below the root; the maintainer took it over."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "adambielski/siamese-triplet#18", 2018
AREA, CAUSE = "precision", "NaN or Inf"
TRUE = set()
PLACE = ()


class Embedding(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.convnet = nn.Sequential(nn.Conv2d(1, size, 3), nn.PReLU(), nn.MaxPool2d(2), nn.Conv2d(size, size, 3),
                                     nn.PReLU(), nn.AdaptiveMaxPool2d(2))
        self.fc = nn.Sequential(nn.Linear(4*size, 32), nn.PReLU(), nn.Linear(32, 2))

    def forward(self, image): return self.fc(self.convnet(image).flatten(1))


class Siamese(nn.Module):
    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding

    def forward(self, first, second): return self.embedding(first), self.embedding(second)


def contrastive(first, second, same, small: float, margin: float = 1.):
    squared = (first - second).square().sum(1)
    apart = (margin - (squared + small).sqrt()).relu().square()
    return (same*squared + (1 - same)*apart).mean()/2


def images(n: int):
    "Four patterns of bars with noise."
    label = torch.randint(0, 4, (n,))
    row, column = torch.meshgrid(torch.arange(12), torch.arange(12), indexing="ij")
    patterns = torch.stack([row % 4, column % 4, (row + column) % 4, (row - column) % 4]) < 2
    shift = torch.randint(0, 4, (n,)).tolist()
    return torch.stack([patterns[k].float().roll((s, s), (0, 1)) for k, s in zip(label, shift)])[:, None] \
        + .3*torch.randn(n, 1, 12, 12), label


def pairs(n: int):
    "Pairs of the same or of other patterns. A few pictures are in the data under two names."
    image, label = images(n)
    other, other_label = images(n)
    twice = torch.rand(n) < .002
    other = torch.where(twice[:, None, None, None], image, other)
    return image, other, (label == other_label).float()


def build(repaired: bool) -> Parts:
    model = Siamese(Embedding(8))
    small = 1e-9 if repaired else 0.
    columns = pairs(3072)
    data = [tuple(column[i:i + 32] for column in columns) for i in range(0, 3072, 32)]

    def call(model, batch): return contrastive(*model(*batch[:2]), batch[2], small)

    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, call=call, valid=[images(512)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    image, label = parts.valid[0]
    with torch.no_grad(): where = parts.model.embedding(image)
    distance = torch.cdist(where[256:], where[:256])
    return (label[:256][distance.argmin(1)] != label[256:]).float().mean().item()
