"""Embeddings are kept small by a term of the loss and once more by the weight decay of the optimizer.

The report: in a library of recommender systems a model that smooths embeddings over the graph of users and things has
its own penalty on them, and the optimizer gets a weight decay from the same settings. A maintainer called it a bug, and
the merged change warns of having both."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "RUCAIBox/RecBole#872", 2021
AREA, CAUSE = "optimizer and schedule", "weight decay too strong"
TRUE = {"loss does not fall"}
PLACE = ("users", "things")


class Smoothed(nn.Module):
    "The mean of embeddings over zero to two steps in the graph of who has what."
    def __init__(self, users: int, things: int, size: int = 16):
        super().__init__()
        self.users, self.things = nn.Embedding(users, size), nn.Embedding(things, size)
        nn.init.xavier_uniform_(self.users.weight)
        nn.init.xavier_uniform_(self.things.weight)
        self.register_buffer("graph", torch.zeros(users + things, users + things))

    def forward(self):
        x = torch.cat([self.users.weight, self.things.weight])
        layers = [x]
        for _ in range(2): layers.append(self.graph @ layers[-1])
        return torch.stack(layers).mean(0).split([self.users.num_embeddings, self.things.num_embeddings])


def tastes(users: int, things: int):
    "Who likes what, by three hidden tastes; which of it is known, and which has to be found."
    strength = torch.randn(users, 3) @ torch.randn(things, 3).T
    likes = strength > strength.quantile(.85, 1, keepdim=True)
    known = likes & (torch.rand(users, things) < .6)
    return known, likes & ~known


def loss_of(model, batch):
    user, liked, other = batch
    users, things = model()
    worth = (users[user]*(things[liked] - things[other])).sum(1)
    own = model.users(user).square().sum() + model.things(liked).square().sum() + model.things(other).square().sum()
    return F.softplus(-worth).mean() + 1e-4*own/len(user)


def build(repaired: bool) -> Parts:
    known, hidden = tastes(120, 80)
    model = Smoothed(120, 80)
    degree = torch.cat([known.sum(1), known.sum(0)]).clamp(min=1).float().rsqrt()
    model.graph[:120, 120:], model.graph[120:, :120] = known.float(), known.T.float()
    model.graph *= degree.unsqueeze(1)*degree
    user, liked = known.nonzero()[torch.randperm(int(known.sum()))].T
    data = [(who, what, torch.randint(0, 80, (len(who),)))
            for _ in range(15) for who, what in zip(user.split(64), liked.split(64))]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=0. if repaired else 1e-2)
    return Parts(model, optimizer, data, call=loss_of, valid=[(known, hidden)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for batch in parts.data:
            optimizer.zero_grad()
            loss = parts.call(model, batch)
            loss.backward()
            optimizer.step()
            record.step(loss)
    known, hidden = parts.valid[0]
    with torch.no_grad(): users, things = model()
    worth = (users @ things.T).masked_fill(known, -1e9)
    first = worth.topk(8, 1).indices
    return 1 - hidden.gather(1, first).float().sum().item()/hidden.sum(1).clamp(max=8).sum().item()
