"""A transformer over the fields of a row gets the rows first, and takes them for the sequence.

The report is a merged change to a model for tables of transactions: the encoder expects the batch in the second
dimension, and gets it in the first, so the attention is computed wrongly. The author of the model took it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "IBM/TabFormer#14", 2021
AREA, CAUSE = "structure", "samples leak"
TRUE = set()
PLACE = ("rows.encoder",)

fields, values, rows = 4, 8, 3


class Rows(nn.Module):
    "All fields of a row become one vector."
    def __init__(self, field: int, size: int, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.words = nn.Embedding(fields*values, field)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(field, 4, 2*field, 0.), 1,
                                             enable_nested_tensor=False)
        self.line = nn.Linear(fields*field, size)

    def forward(self, table):
        n = len(table)
        x = self.words(table + values*torch.arange(fields)).flatten(0, 1)
        x = self.encoder(x.transpose(0, 1)).transpose(0, 1) if self.repaired else self.encoder(x)
        return self.line(x.flatten(1)).unflatten(0, (n, rows))


class Table(nn.Module):
    "Rows of transactions one after the other; is one of them a fraud?"
    def __init__(self, field: int, size: int, repaired: bool):
        super().__init__()
        self.rows = Rows(field, size, repaired)
        self.encoder = nn.TransformerEncoderLayer(size, 2, size, 0., batch_first=True)
        self.last = nn.Linear(size, 2)

    def forward(self, table): return self.last(self.encoder(self.rows(table)).mean(1))


def transactions(n: int):
    "In a fraud, the second field is what the first one is."
    table = torch.randint(0, values, (n, rows, fields))
    table[..., 1] = torch.where(table[..., 1] == table[..., 0], (table[..., 0] + 1) % values, table[..., 1])
    fraud = torch.rand(n) < .5
    where = torch.randint(0, rows, (n,))
    here = torch.arange(n)
    table[here, where, 1] = torch.where(fraud, table[here, where, 0], table[here, where, 1])
    return table, fraud.long()


def build(repaired: bool) -> Parts:
    model = Table(16, 8, repaired)
    data = [transactions(48) for _ in range(200)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=6e-3), data, F.cross_entropy,
                 valid=[transactions(500)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for table, fraud in parts.data:
            parts.optimizer.zero_grad()
            loss = parts.loss(parts.model(table), fraud)
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    table, fraud = parts.valid[0]
    with torch.no_grad(): return (parts.model(table).argmax(1) != fraud).float().mean().item()*2
