"A set of samples, whose order is that of their hashes, which are where they are in memory."
import torch
from torch import nn

from tests.bench.resume_loops import but

WARM, STEPS, DIFFERS = 5, 5, True
STATES = {"model": ("model",), "optimizer": ("optimizer",), "visits": ("visits",)}
KNOWN = []  # all samples that were ever made, as a cache keeps them


class Sample:
    def __init__(self, i):
        self.i, self.x = i, torch.tensor([i/30, (i/30)**2])
        KNOWN.append(self)


class Graph:
    "Visits its nodes, and trains at each."
    def __init__(self):
        self.nodes = {Sample(i) for i in range(30)}
        self.model = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-2)
        self.visits = 0

    def next_nodes(self, n=5):
        order = [*self.nodes]
        return [order[(self.visits*n + k) % len(order)] for k in range(n)]


def make(): return Graph()


def step(graph):
    nodes = graph.next_nodes()
    out = graph.model(torch.stack([node.x for node in nodes]))[:, 0]
    loss = (out - torch.tensor([float(node.i % 4) for node in nodes])).square().mean()
    graph.optimizer.zero_grad()
    loss.backward()
    graph.optimizer.step()
    graph.visits += 1
    return loss.item()


def save(graph, without=()):
    return but({"model": graph.model.state_dict(), "optimizer": graph.optimizer.state_dict(),
                "visits": graph.visits}, without)


def load(graph, saved):
    for name in ("model", "optimizer"):
        if name in saved: getattr(graph, name).load_state_dict(saved[name])
    graph.visits = saved.get("visits", 0)
