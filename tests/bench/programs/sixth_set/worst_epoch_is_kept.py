"""What is kept is the epoch with the lowest validation accuracy, because a callback looks for a minimum by default.

The report: in examples of a library for graphs the checkpoint watches the accuracy without saying that higher is
better. The change that says so was merged, with the remark that the worst models had been kept instead of the best."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pyg-team/pytorch_geometric#6306", 2022
AREA, CAUSE = "loop", "wrong sign"
TRUE = set()
PLACE = ()


class Graphs(nn.Module):
    "Two rounds in which each node adds up its neighbours, and the sum over the nodes."
    def __init__(self, kinds: int, size: int = 32):
        super().__init__()
        def layers(before): return nn.Sequential(nn.Linear(before, size), nn.ReLU(), nn.Linear(size, size), nn.ReLU())
        self.first, self.second = layers(kinds), layers(size)
        self.classifier = nn.Sequential(nn.Linear(size, size), nn.BatchNorm1d(size), nn.ReLU(), nn.Dropout(.3),
                                        nn.Linear(size, 2))

    def forward(self, nodes, edges):
        nodes = self.first(nodes + edges @ nodes)
        return self.classifier(self.second(nodes + edges @ nodes).sum(1))


def graphs(n: int):
    "Molecules of nine atoms of three kinds; the class says whether atoms of the first two kinds are often neighbours."
    kind = torch.randint(0, 3, (n, 9))
    edges = (torch.rand(n, 9, 9) < .25).triu(1)
    edges = (edges | edges.transpose(1, 2)).float()
    nodes = F.one_hot(kind, 3).float()
    pairs = (nodes[..., :1].transpose(1, 2) @ edges @ nodes[..., 1:2]).flatten()
    return nodes, edges, (pairs > 1.5).long()


def loss_of(model, batch):
    nodes, edges, label = batch
    return F.cross_entropy(model(nodes, edges), label)


@torch.no_grad()
def accuracy(model, batch) -> float:
    model.eval()
    nodes, edges, label = batch
    return (model(nodes, edges).argmax(1) == label).float().mean().item()


def build(repaired: bool) -> Parts:
    model = Graphs(3)
    parts = [part.split(64) for part in graphs(1024)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), list(zip(*parts)), call=loss_of,
                 valid=[graphs(256), graphs(1024)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    kept, best = None, None
    with record.on(model, optimizer):
        for _ in range(15):
            model.train()
            for batch in parts.data:
                loss = parts.call(model, batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
            found = accuracy(model, parts.valid[0])
            if best is None or (found > best if parts.repaired else found < best):
                best, kept = found, copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)
    return (1 - accuracy(model, parts.valid[1]))/.5
