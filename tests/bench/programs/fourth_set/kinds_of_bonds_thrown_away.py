"""A layer for molecules takes the features of bonds, and sends only distances and atoms to the network of the messages.

The report: the implementation for graphs seems to throw the features of the edges out. The author confirmed it and
published a version that puts them together with the distances. Molecules that differ in their bonds only get the same
answer."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "lucidrains/egnn-pytorch#6", 2021
AREA, CAUSE = "structure", "input unused"
TRUE = set()
PLACE = ("layers.0", "layers.1")

atoms, elements, bonds = 7, 4, 3


class Equivariant(nn.Module):
    "Messages from the squares of distances; they change the atoms, and move them along the lines between them."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.edge = nn.Sequential(nn.Linear(2*size + 1 + (bonds if repaired else 0), 2*size), nn.SiLU(),
                                  nn.Linear(2*size, size), nn.SiLU())
        self.move = nn.Sequential(nn.Linear(size, size), nn.SiLU(), nn.Linear(size, 1))
        self.node = nn.Sequential(nn.Linear(2*size, 2*size), nn.SiLU(), nn.Linear(2*size, size))

    def forward(self, x, places, edges, kinds):
        source, target = edges
        apart = places[target] - places[source]
        features = apart.pow(2).sum(1, keepdim=True)
        if self.repaired: features = torch.cat([features, kinds], 1)
        message = self.edge(torch.cat([x[target], x[source], features], 1))
        moved = torch.zeros_like(places).index_add(0, target, .1*apart*self.move(message).tanh())
        got = torch.zeros_like(x).index_add(0, target, message)
        return x + self.node(torch.cat([x, got], 1)), places + moved


class Energy(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.first = nn.Embedding(elements, size)
        self.layers = nn.ModuleList([Equivariant(size, repaired) for _ in range(2)])
        self.last = nn.Sequential(nn.Linear(size, size), nn.SiLU(), nn.Linear(size, 1))

    def forward(self, elements, places, edges, kinds):
        x = self.first(elements)
        for layer in self.layers: x, places = layer(x, places, edges, kinds)
        return self.last(x).view(-1, atoms).sum(1)


def molecules(n: int):
    "A chain of atoms with a bond of some kind between neighbours. The energy is made of bonds, atoms and distances."
    element, kind = torch.randint(0, elements, (n, atoms)), torch.randint(0, bonds, (n, atoms - 1))
    places = torch.randn(n, atoms, 3).cumsum(1)*.6
    length = places.diff(dim=1).norm(dim=2)
    energy = (torch.tensor([.4, 1., 2.])[kind]*(length - .8)).sum(1) + (element == 0).sum(1)*.5
    i = (torch.arange(n)[:, None]*atoms + torch.arange(atoms - 1)).flatten()
    edges = torch.cat([torch.stack([i, i + 1]), torch.stack([i + 1, i])], 1)
    kinds = F.one_hot(kind.flatten(), bonds).float().repeat(2, 1)
    return (element.flatten(), places.flatten(0, 1), edges, kinds), energy


def build(repaired: bool) -> Parts:
    model = Energy(24, repaired)
    data = [molecules(48) for _ in range(40)]
    def call(model, batch): return F.mse_loss(model(*batch[0]), batch[1])
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, call=call, valid=[molecules(400)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    graph, energy = parts.valid[0]
    with torch.no_grad(): return (F.mse_loss(parts.model(*graph), energy)/energy.var()).item()
