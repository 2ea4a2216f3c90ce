"""Dropout is called as a function that is not told the mode, so cells lose features when tables are read in use, too.

The report: `eval()` does not switch off the functional dropout of a graph network that finds the structure of tables,
which changes what it returns and makes results worse. The change to layers was merged."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "Academic-Hammer/SciTSR#16", 2020
AREA, CAUSE = "modes", "random in eval"
TRUE = set()
PLACE = ()

rows, size = 3, 32
cells = rows*rows


class Attend(nn.Module):
    "What one kind of node (cells, or pairs of cells) hears from the other one."
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.ask, self.key, self.value = (nn.Linear(size, size) for _ in range(3))
        self.after = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, size))
        self.one, self.two = nn.LayerNorm(size), nn.LayerNorm(size)

    def drop(self, x): return F.dropout(x, training=self.training) if self.repaired else F.dropout(x)

    def forward(self, x, other, near):
        weight = (self.ask(x) @ self.key(other).transpose(1, 2)/size**.5).masked_fill(~near, -1e9).softmax(2)
        x = self.one(x + self.drop(weight @ self.value(other)))
        return self.two(x + self.drop(self.after(x)))


class TableReader(nn.Module):
    "Cells and pairs of cells hear of each other in turn; then each pair is in a row, in a column, or in neither."
    def __init__(self, repaired: bool):
        super().__init__()
        pair = torch.combinations(torch.arange(cells))
        self.register_buffer("pair", pair)
        self.register_buffer("near", (pair[:, :1] == torch.arange(cells)) | (pair[:, 1:] == torch.arange(cells)))
        self.of_cell, self.of_pair = nn.Linear(4, size), nn.Linear(6, size)
        self.blocks = nn.ModuleList(nn.ModuleList(Attend(repaired) for _ in range(2)) for _ in range(2))
        self.last = nn.Linear(size, 3)

    def forward(self, box):
        one, two = box[:, self.pair[:, 0]], box[:, self.pair[:, 1]]
        cell, pair = self.of_cell(box), self.of_pair(torch.cat([one - two, (one - two)[..., :2].abs()], 2))
        for to_cell, to_pair in self.blocks:
            cell = to_cell(cell, pair, self.near.T)
            pair = to_pair(pair, cell, self.near)
        return self.last(pair).transpose(1, 2)


def tables(n: int):
    "Cells of three rows and columns in any order, whose boxes differ in size and lie a little beside their place."
    order = torch.rand(n, cells).argsort(1)
    row, column = order//rows, order % rows
    steps = .6 + .8*torch.rand(n, 2, rows)
    place = steps.cumsum(2).gather(2, torch.stack([column, row], 1)).transpose(1, 2)
    box = torch.cat([place + .17*torch.randn(n, cells, 2), .3 + .5*torch.rand(n, cells, 2)], 2)
    one, two = torch.combinations(torch.arange(cells)).T
    return box, torch.where(row[:, one] == row[:, two], 1, torch.where(column[:, one] == column[:, two], 2, 0))


def build(repaired: bool) -> Parts:
    model = TableReader(repaired)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-5)
    return Parts(model, optimizer, [tables(24) for _ in range(40)], F.cross_entropy, valid=[tables(200)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            parts.model.train()
            for box, kind in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(box), kind)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    box, kind = parts.valid[0]
    odds = kind.flatten().bincount()/kind.numel()
    with torch.no_grad(): return (parts.loss(parts.model(box), kind)/-(odds*odds.log()).sum()).item()
