"""Embeddings begin as torch draws them, with a deviation of one, so that their products are far too large.

The report: a network with embeddings did not train, and its author needed many hours to find out why: torch draws them
from a normal distribution with a deviation of one, which is too high. To draw them as other layers do mended it."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pytorch/pytorch#3121", 2017
AREA, CAUSE = "initialisation", "weights too large"
TRUE = {"saturated", "learning rate too small"}
PLACE = ("users", "users.weight", "things", "things.weight", "of_user", "of_thing")


class Likes(nn.Module):
    "How much a user likes a thing: the product of their embeddings, and how popular each of them is."
    def __init__(self, users: int, things: int, size: int):
        super().__init__()
        self.users, self.things = nn.Embedding(users, size), nn.Embedding(things, size)
        self.of_user, self.of_thing = nn.Embedding(users, 1), nn.Embedding(things, 1)

    def forward(self, pair):
        user, thing = pair.unbind(1)
        match = (self.users(user)*self.things(thing)).sum(1)
        return match + self.of_user(user).squeeze(1) + self.of_thing(thing).squeeze(1)


def tastes(users: int, things: int):
    "Pairs in a random order, and whether they match, by two hidden tastes."
    strength = torch.randn(users, 2) @ torch.randn(things, 2).T
    pair = torch.cartesian_prod(torch.arange(users), torch.arange(things))[torch.randperm(users*things)]
    return pair, (strength[pair[:, 0], pair[:, 1]] > 0).float()


def build(repaired: bool) -> Parts:
    model = Likes(100, 80, 64)
    if repaired:
        for layer in (model.users, model.things, model.of_user, model.of_thing):
            bound = 1/math.sqrt(layer.embedding_dim)
            nn.init.uniform_(layer.weight, -.5*bound, .5*bound)
    pair, label = tastes(100, 80)
    data = list(zip(pair[:6400].split(64), label[:6400].split(64)))
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, F.binary_cross_entropy_with_logits,
                 valid=[(pair[6400:], label[6400:])])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(6):
            for pair, label in parts.data:
                optimizer.zero_grad()
                loss = parts.loss(model(pair), label)
                loss.backward()
                optimizer.step()
                record.step(loss)
    pair, label = parts.valid[0]
    with torch.no_grad(): return ((model(pair) > 0).float() != label).float().mean().item()/.5
