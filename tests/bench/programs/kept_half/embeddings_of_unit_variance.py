"""The embeddings of users and items keep the normal random numbers they start with, which are far too large.

The report: a recommender does not reach the results of its paper. A deviation of 0.01 at the start reproduces them; the
maintainer, who had been puzzled by it for a long time, merged that."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "yihong-chen/neural-collaborative-filtering#23", 2024
AREA, CAUSE = "initialisation", "weights too large"
TRUE = set()
PLACE = ("users", "items", "last")


class Recommender(nn.Module):
    "A weighted product of the embeddings of a user and an item."
    def __init__(self, users: int, items: int, size: int, repaired: bool):
        super().__init__()
        self.users, self.items, self.last = nn.Embedding(users, size), nn.Embedding(items, size), nn.Linear(size, 1)
        if repaired:
            for table in self.users, self.items: nn.init.normal_(table.weight, 0., .01)

    def forward(self, user, item): return self.last(self.users(user)*self.items(item))[:, 0]


def ratings(n: int, taste: torch.Tensor, kind: torch.Tensor):
    "A user likes an item if their hidden tastes agree, more or less."
    user, item = torch.randint(0, len(taste), (n,)), torch.randint(0, len(kind), (n,))
    chance = (3*(taste[user]*kind[item]).sum(1)).sigmoid()
    return user, item, (torch.rand(n) < chance).float()


def build(repaired: bool) -> Parts:
    model = Recommender(80, 80, 24, repaired)
    taste, kind = torch.randn(80, 2), torch.randn(80, 2)
    user, item, liked = ratings(4096, taste, kind)
    data = [(user[i:i + 128], item[i:i + 128], liked[i:i + 128]) for i in range(0, 4096, 128)]

    def call(model, batch):
        user, item, liked = batch
        return F.binary_cross_entropy_with_logits(model(user, item), liked)

    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, call=call,
                 valid=[ratings(2048, taste, kind)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(12):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad(): return parts.call(parts.model, parts.valid[0]).item()/math.log(2)
