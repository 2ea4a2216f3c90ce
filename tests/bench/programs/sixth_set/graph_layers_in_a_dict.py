"""The layers of a graph convolution over items are kept in a plain dict, so the optimizer does not get them.

The report, on a recommender for sessions: `parameters()` does not find weights in a dict of Python, so they would not
be trained. The author updated the code to a `ModuleList` and got slightly better results than before."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "xiaxin1998/COTREC#15", 2023
AREA, CAUSE = "parameters", "not registered"
TRUE = {"not trained"}
PLACE = ("graph",)

items, groups, length = 120, 12, 5


class ItemGraph(nn.Module):
    "Features of an item mixed with those of items that are seen together with it."
    def __init__(self, features: int, size: int, layers: int, repaired: bool):
        super().__init__()
        sizes = [features, *[size]*layers]
        self.weights = nn.ModuleDict() if repaired else {}
        for i in range(layers): self.weights[f"layer{i}"] = nn.Linear(sizes[i], sizes[i + 1], bias=False)

    def forward(self, together, x):
        found = []
        for layer in self.weights.values():
            x = together @ layer(x)
            found.append(F.normalize(x, dim=-1))
        return sum(found)/len(found)


class Sessions(nn.Module):
    "Scores of all items as the next one, from an attention over the items of a session."
    def __init__(self, known, together, size: int, repaired: bool):
        super().__init__()
        self.register_buffer("known", known)
        self.register_buffer("together", together)
        self.graph = ItemGraph(known.shape[1], size, 2, repaired)
        self.place = nn.Embedding(length, size)
        self.mix, self.weigh = nn.Linear(2*size, size), nn.Linear(size, 1, bias=False)

    def forward(self, session):
        all_items = self.graph(self.together, self.known)
        x = all_items[session]
        place = self.place.weight.expand(len(x), -1, -1)
        mixed = torch.tanh(self.mix(torch.cat([place, x], -1)))
        chosen = (self.weigh(mixed)*x).sum(1)
        return 10*F.normalize(chosen, dim=-1) @ F.normalize(all_items, dim=-1).T


def shop():
    "Items of groups: what is known of an item tells its group and much else; bought after a group is the next group."
    group = torch.arange(items) % groups
    known = torch.cat([torch.randn(groups, 8)[group], 2*torch.randn(items, 24)], 1) @ torch.randn(32, 32)/32**.5
    near = torch.rand(items, items) < torch.where(group[:, None] == group, .3, .02)
    near = (near | near.T).float() + torch.eye(items)
    return group, known, near/near.sum(1, keepdim=True)


def sessions(n: int, group):
    first = torch.randint(groups, (n, 1))
    path = (first + torch.arange(length + 1)) % groups
    bought = path + groups*torch.randint(items//groups, path.shape)
    return bought[:, :-1], bought[:, -1]


def build(repaired: bool) -> Parts:
    group, known, together = shop()
    model = Sessions(known, together, 24, repaired)
    data = [sessions(100, group) for _ in range(40)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3), data, F.cross_entropy,
                 valid=[sessions(500, group)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            for session, bought in parts.data:
                parts.model.zero_grad()
                loss = parts.loss(parts.model(session), bought)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    session, bought = parts.valid[0]
    with torch.no_grad(): return (parts.loss(parts.model(session), bought)/torch.tensor(float(items)).log()).item()
