"""Vectors of customers and items are averaged over the graph of purchases, and ranked in pairs.

Habits of the source: nothing is trained but the embeddings, which begin with a deviation of .1; layers are a product
with a sparse matrix, and their mean counts; the softplus of the difference between a wrong and a right item; a decay of
the first vectors only, written into the loss; negatives drawn anew in each epoch; the matrix is made of the training
purchases alone; bought items are left out of the ranking at test time.
Score: the part of held-back purchases that are not among the first ten. Below .3; .9 for untrained vectors."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "gusye1234/LightGCN-PyTorch code/main.py", 2020
USERS, ITEMS, TASTES = 150, 120, 8


class Graph(nn.Module):
    def __init__(self, bought):
        super().__init__()
        self.user, self.item = nn.Embedding(USERS, 24), nn.Embedding(ITEMS, 24)
        for table in (self.user, self.item): nn.init.normal_(table.weight, std=.1)
        edges = torch.cat([bought, bought.flip(0)], 1) + torch.tensor([[0], [USERS]])
        edges[:, bought.shape[1]:] += torch.tensor([[USERS], [-USERS]])
        degree = torch.bincount(edges[0], minlength=USERS + ITEMS).clamp(1).float().rsqrt()
        self.graph = torch.sparse_coo_tensor(edges, degree[edges].prod(0), (USERS + ITEMS,)*2).coalesce()

    def averaged(self):
        layers = [torch.cat([self.user.weight, self.item.weight])]
        for _ in range(3): layers.append(torch.sparse.mm(self.graph, layers[-1]))
        return torch.stack(layers).mean(0).split([USERS, ITEMS])

    def forward(self, user, right, wrong):
        "How much more the wrong item is liked; and the size of the vectors that are trained."
        users, items = self.averaged()
        size = sum(v.pow(2).sum() for v in (self.user(user), self.item(right), self.item(wrong)))/2/len(user)
        return (users[user]*(items[wrong] - items[right])).sum(1), size


def purchases():
    "Fourteen of each customer, most from items of the taste; the first three are held back."
    taste = torch.randint(TASTES, (USERS,))
    chance = torch.where(torch.arange(ITEMS) % TASTES == taste[:, None], 1., .04)
    item = torch.multinomial(chance, 14)
    pairs = torch.stack([torch.arange(USERS)[:, None].expand_as(item), item])
    return pairs[:, :, 3:].flatten(1), pairs[:, :, :3].flatten(1)


class Pairs:
    "All purchases in a new order, each with an item that the customer did not buy."
    def __init__(self, bought):
        self.bought, self.has = bought, torch.zeros(USERS, ITEMS, dtype=torch.bool)
        self.has[bought[0], bought[1]] = True

    def __len__(self): return math.ceil(self.bought.shape[1]/256)

    def __iter__(self):
        user, right = self.bought[:, torch.randperm(self.bought.shape[1])]
        wrong = torch.multinomial((~self.has[user]).float(), 1)[:, 0]
        return zip(user.split(256), right.split(256), wrong.split(256))


def call(model, batch):
    more, size = model(*batch)
    return F.softplus(more).mean() + 1e-4*size


def build(repaired: bool) -> Parts:
    bought, held = purchases()
    model = Graph(bought)
    parts = Parts(model, torch.optim.Adam(model.parameters(), lr=1e-2), Pairs(bought), call=call)
    parts.held = held
    return parts


def train(parts: Parts, record) -> float:
    model, optimizer, (user, item) = parts.model, parts.optimizer, parts.held
    with record.on(model, optimizer):
        for _ in range(40):
            model.train()
            for batch in parts.data:
                loss = parts.call(model, batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
    model.eval()
    with torch.no_grad(): users, items = model.averaged()
    first = (users @ items.T).masked_fill(parts.data.has, -torch.inf).topk(10).indices
    return 1 - (first[user] == item[:, None]).any(1).float().mean().item()
