"""The classes of a table are called 5 and 7, and these numbers go into the loss, which takes them for probabilities.

The report: a library for tables remembers which classes there are, and gives the loss the labels as they come. With two
classes called 5 and 7 a table that can be separated exactly is learned to 47.75 %, with 0 and 1 to 100 %. The author
measured both; labels are now replaced by their places among the classes."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "OpenTabular/DeepTab#409", 2026
AREA, CAUSE = "data and labels", "labels wrongly encoded"
TRUE = {"outputs blow up"}
PLACE = ()
classes = torch.tensor([5, 7])


class Table(nn.Module):
    "Numbers and a category of a row; one output for two classes."
    def __init__(self, size: int):
        super().__init__()
        self.category = nn.Embedding(6, 4)
        self.norm = nn.BatchNorm1d(8)
        self.layers = nn.Sequential(nn.Linear(12, size), nn.ReLU(), nn.Dropout(.1), nn.Linear(size, size), nn.ReLU(),
                                    nn.Dropout(.1), nn.Linear(size, 1))

    def forward(self, numbers, category):
        return self.layers(torch.cat([self.norm(numbers), self.category(category)], 1))[:, 0]


def rows(n: int):
    numbers, category = 3 + 2*torch.randn(n, 8), torch.randint(0, 6, (n,))
    high = (numbers[:, 0] - numbers[:, 1] + (category - 2.5) + .5*(numbers[:, 2] - 3)**2) > 2
    return numbers, category, classes[high.long()]


def build(repaired: bool) -> Parts:
    model = Table(64)

    def prepared(numbers, category, label):
        target = torch.searchsorted(classes, label) if repaired else label
        return numbers, category, target.float()

    data = list(zip(*(column.split(64) for column in prepared(*rows(2048)))))

    def call(model, batch): return F.binary_cross_entropy_with_logits(model(*batch[:2]), batch[2])

    return Parts(model, torch.optim.AdamW(model.parameters(), lr=2e-3), data, call=call, valid=[prepared(*rows(512))])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            parts.model.train()
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    numbers, category, target = parts.valid[0]
    with torch.no_grad(): high = parts.model(numbers, category) > 0
    return (high != (target == target.max())).float().mean().item()
