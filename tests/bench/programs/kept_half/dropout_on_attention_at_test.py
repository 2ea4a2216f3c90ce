"""A dropout on the weights of attention is a function without its flag for training, so that it drops at the test too.

The report: in a factorisation machine with attention `F.dropout` is called without `training`. The maintainer called it
a bug and mended it."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "rixwew/pytorch-fm#21", 2020
AREA, CAUSE = "modes", "random in eval"
TRUE = set()
PLACE = ()


class Machine(nn.Module):
    "Products of all pairs of the fields' embeddings, weighted by attention, beside a linear part."
    def __init__(self, fields: int, values: int, size: int, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.embedding, self.linear = nn.Embedding(fields*values, size), nn.Embedding(fields*values, 1)
        self.attention, self.score = nn.Linear(size, size), nn.Linear(size, 1)
        self.last = nn.Linear(size, 1)
        self.register_buffer("start", torch.arange(fields)*values)
        self.left, self.right = torch.triu_indices(fields, fields, 1)

    def drop(self, x):
        return F.dropout(x, .5, self.training) if self.repaired else F.dropout(x, .5)

    def forward(self, x):
        x = x + self.start
        e = self.embedding(x)
        pairs = e[:, self.left]*e[:, self.right]
        weights = self.score(self.attention(pairs).relu()).softmax(1)
        both = self.drop((self.drop(weights)*pairs).sum(1))
        return (self.linear(x).sum(1) + self.last(both))[:, 0]


def clicks(n: int):
    "Six fields of five values; two pairs of fields decide together whether there is a click."
    x = torch.randint(0, 5, (n, 6))
    logit = 6.*(x[:, 0] == x[:, 1]) + 6.*((x[:, 2] + x[:, 3]) % 2 == 0) - 4
    return x, (torch.rand(n) < logit.sigmoid()).float()


def build(repaired: bool) -> Parts:
    model = Machine(6, 5, 16, repaired)
    x, y = clicks(4096)
    data = [(x[i:i + 128], y[i:i + 128]) for i in range(0, 4096, 128)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-2), data, F.binary_cross_entropy_with_logits,
                 valid=[clicks(2048)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(16):
            parts.model.train()
            for x, y in parts.data:
                loss = parts.loss(parts.model(x), y)
                parts.model.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    x, y = parts.valid[0]
    with torch.no_grad(): return parts.loss(parts.model(x), y).item()/math.log(2)
