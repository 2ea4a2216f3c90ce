"""A network that matches the nodes of two graphs returns a softmax over the nodes, and the cross-entropy takes another.

The report is the merged change of the author: there was a softmax before a cross-entropy, and it was taken out."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "mlelarge/graph_neural_net#37", 2021
AREA, CAUSE = "loss and task", "activation before the loss"
TRUE = set()
PLACE = ("softmax",)
NODES = 12


class Siamese(nn.Module):
    "Embeds the nodes of both graphs by the same layers and compares them."
    def __init__(self, repaired: bool, size: int = 32):
        super().__init__()
        self.first = nn.Linear(3, size)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(3*size, size), nn.ReLU(), nn.Linear(size, size))
                                    for _ in range(3))
        self.last = nn.Linear(size, size)
        self.softmax = nn.Identity() if repaired else nn.Softmax(2)

    def embed(self, graph):
        degree = graph.sum(2, keepdim=True)/4
        around = graph @ degree/4
        x = self.first(torch.cat([degree, around, graph @ around/4], 2)).relu()
        for layer in self.layers: x = x + layer(torch.cat([x, graph @ x/4, graph @ (graph @ x)/16], 2))
        return self.last(x)

    def forward(self, pair):
        left, right = self.embed(pair[:, 0]), self.embed(pair[:, 1])
        return self.softmax(left @ right.transpose(1, 2)/left.shape[2]**.5)


def pairs(n: int):
    "A graph with weights, and a noisy copy in which the nodes have other numbers: which node is which."
    graph = torch.rand(n, NODES, NODES)*(torch.rand(n, NODES, NODES) < .4)
    graph = graph.triu(1) + graph.triu(1).transpose(1, 2)
    noise = .03*torch.randn(n, NODES, NODES).triu(1)
    other = graph + (noise + noise.transpose(1, 2))*(graph > 0)
    order = torch.rand(n, NODES).argsort(1)
    rows = torch.arange(n)[:, None, None]
    moved = other[rows, order[:, :, None], order[:, None, :]]
    return torch.stack([graph, moved], 1), order.argsort(1)


def build(repaired: bool) -> Parts:
    model = Siamese(repaired)
    data = [pairs(32) for _ in range(40)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-3), data,
                 lambda scores, place: F.cross_entropy(scores.transpose(1, 2), place), valid=[pairs(200)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(5):
            model.train()
            for pair, place in parts.data:
                loss = parts.loss(model(pair), place)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
    pair, place = parts.valid[0]
    model.eval()
    with torch.no_grad(): return (model(pair).argmax(2) != place).float().mean().item()
