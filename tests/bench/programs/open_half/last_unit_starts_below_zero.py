"""The bias of the one last unit is drawn with a deviation of one and comes out far below zero: its ReLU is always off.

The report: in a model for recommendations all outputs are zero, and so are all gradients, because what is called Xavier
initialisation gives a large negative bias before the last ReLU. The reporter showed both before and after the repair:
with small biases there are outputs and gradients."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pytorch/benchmark#1927", 2023
AREA, CAUSE = "initialisation", "dead units"
TRUE = {"constant output", "input unused", "gradients vanish", "not trained", "loss does not fall",
        "cannot learn by heart"}
PLACE = ("top.2", "top.3")


def tower(sizes: list[int], repaired: bool) -> nn.Sequential:
    "Linear layers with a ReLU after each. The model draws its numbers with a seed of its own."
    layers, chance = [], torch.Generator().manual_seed(16)
    for before, after in zip(sizes, sizes[1:]):
        layer = nn.Linear(before, after)
        with torch.no_grad():
            layer.weight.normal_(0, (2/(before + after))**.5, generator=chance)
            layer.bias.normal_(0, after**-.5, generator=chance)
            if repaired: layer.bias.zero_()
        layers += layer, nn.ReLU()
    return nn.Sequential(*layers)


class Recommender(nn.Module):
    "Numbers go through one tower, and with the embeddings of three columns through another."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(20, size) for _ in range(3))
        for table in self.tables: nn.init.uniform_(table.weight, -20**-.5, 20**-.5)
        self.bottom = tower([6, 16, size], repaired)
        self.top = tower([4*size, 32, 1], repaired)

    def forward(self, numbers, columns):
        parts = [table(column) for table, column in zip(self.tables, columns.unbind(1))]
        return self.top(torch.cat([self.bottom(numbers), *parts], 1))


def visits(n: int):
    numbers, columns = torch.randn(n, 6), torch.randint(0, 20, (n, 3))
    chance = (numbers[:, 0] + numbers[:, 1] + (columns[:, 0] % 2)*2. - (columns[:, 1] > 9)*2.).sigmoid()
    return numbers, columns, (torch.rand(n) < chance).float()[:, None]


def build(repaired: bool) -> Parts:
    model = Recommender(8, repaired)
    data = list(zip(*(part.split(64) for part in visits(4096))))

    def call(model, batch): return F.mse_loss(model(*batch[:2]), batch[2])

    return Parts(model, torch.optim.SGD(model.parameters(), lr=.1), data, call=call, valid=[visits(1024)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad(): return (parts.call(parts.model, parts.valid[0])/parts.valid[0][2].var()).item()
