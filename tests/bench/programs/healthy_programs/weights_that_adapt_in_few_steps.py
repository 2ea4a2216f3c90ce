"""Weights from which a few steps on one example of each kind are enough to tell new kinds apart.

Habits of the source: plain steps of the inner loop by `autograd.grad` with the graph kept, on weights handed through
the network; batch norm always of the batch at hand; the loss on other examples after the last inner step, as a mean
over the tasks; Adam outside; the test adapts a copy, with more inner steps than in training.
Score: the part of wrong kinds after the steps on kinds never seen, by chance. Below .2; .75 for untrained weights."""
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "dragen1860/MAML-Pytorch meta.py", 2018
WAYS, TASKS, INNER = 5, 4, .2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(24, 40), nn.BatchNorm1d(40, track_running_stats=False)
        self.second, self.last = nn.Linear(40, 40), nn.Linear(40, WAYS)

    def forward(self, x): return self.last(self.second(self.norm(self.first(x)).relu()).relu())


def adapted(net, x, y, steps: int, keep: bool):
    "Weights after plain steps on the examples."
    weights = dict(net.named_parameters())
    for _ in range(steps):
        loss = F.cross_entropy(functional_call(net, weights, (x,)), y)
        slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=keep)
        weights = {name: weight - INNER*slope for (name, weight), slope in zip(weights.items(), slopes)}
    return weights


def task(letters):
    "One example of each of five letters, and five others of each, in a new order of the kinds."
    chosen = letters[torch.randperm(len(letters))[:WAYS]]
    def shown(n):
        kind = torch.arange(WAYS).repeat(n)
        clean = chosen[kind] + .3*torch.randn(len(kind), 8)
        return torch.cat([clean, torch.randn(len(kind), 16)], 1) @ mixing, kind
    return *shown(1), *shown(5)


mixing = torch.linalg.qr(torch.randn(24, 24, generator=torch.Generator().manual_seed(0)))[0]


def call(net, tasks):
    loss = 0
    for x, y, others, their in tasks:
        weights = adapted(net, x, y, 3, True)
        loss = loss + F.cross_entropy(functional_call(net, weights, (others,)), their)
    return loss/len(tasks)


def build(repaired: bool) -> Parts:
    net, letters, new = Net(), torch.randn(60, 8), torch.randn(20, 8)
    data = [[task(letters) for _ in range(TASKS)] for _ in range(150)]
    return Parts(net, torch.optim.Adam(net.parameters(), lr=3e-3), data, call=call,
                 valid=[[task(new) for _ in range(TASKS)] for _ in range(25)])


def train(parts: Parts, record) -> float:
    net, optimizer = parts.model, parts.optimizer
    with record.on(net, optimizer):
        for batch in parts.data:
            loss = parts.call(net, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            record.step(loss)
    wrong = 0
    for batch in parts.valid:
        for x, y, others, their in batch:
            weights = adapted(net, x, y, 6, False)
            with torch.no_grad(): said = functional_call(net, weights, (others,)).argmax(1)
            wrong += (said != their).float().mean().item()
    return wrong/len(parts.valid)/TASKS*WAYS/(WAYS - 1)
