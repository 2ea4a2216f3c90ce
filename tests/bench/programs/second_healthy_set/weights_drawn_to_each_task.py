"""Weights from which new kinds of things are told apart after some steps: they are drawn to the result of each task.

Habits of the source: each task is learned by a clone of the net with an Adam of its own, whose first beta is 0 and
whose state goes on from task to task; what the slow net gets for a gradient is its weights less those of the clone, and
a plain step at a rate that falls from 1 to 0 in a line moves it; batch norm takes the batch when learning a task and
its averages when tested, which begin anew with each clone; many more steps when tested than in training.
Score: the part of wrong kinds in new tasks, by chance. Below .15; about .3 after those steps from untrained weights."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "gabrielhuang/reptile-pytorch train_omniglot.py", 2018
WAYS, SHOTS, TASKS, STEPS = 4, 5, 250, 8


class Net(nn.Sequential):
    def __init__(self):
        def block(n): return nn.Linear(n, 48), nn.BatchNorm1d(48), nn.ReLU()
        super().__init__(*block(32), *block(48), nn.Linear(48, WAYS))

    def clone(self): return copy.deepcopy(self)

    def point_grad_to(self, target):
        for mine, its in zip(self.parameters(), target.parameters()): mine.grad = mine.data - its.data


mixing = torch.linalg.qr(torch.randn(32, 32, generator=torch.Generator().manual_seed(0)))[0]


def task(kinds, shots: int):
    "Some examples of some kinds and as many others of them; most of an example is noise, mixed with the rest."
    chosen = kinds[torch.randperm(len(kinds))[:WAYS]]
    def shown():
        kind = torch.arange(WAYS).repeat(shots)
        clean = chosen[kind] + .3*torch.randn(len(kind), 6)
        return torch.cat([clean, torch.randn(len(kind), 26)], 1) @ mixing, kind
    return *shown(), *shown()


def adam(net, state=None):
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2, betas=(0., .999))
    if state: optimizer.load_state_dict(state)
    return optimizer


def learned(net, optimizer, x, y, steps: int):
    "The last loss after some steps on a task."
    net.train()
    for _ in range(steps):
        rows = torch.randperm(len(x))[:10]
        loss = F.cross_entropy(net(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss


def build(repaired: bool) -> Parts:
    net, old = Net(), torch.randn(60, 6)
    parts = Parts(net, torch.optim.SGD(net.parameters(), lr=1.), [task(old, 2*SHOTS)[:2] for _ in range(TASKS)],
                  F.cross_entropy)
    parts.new = torch.randn(20, 6)
    return parts


def wrong(net, state, kinds) -> float:
    x, y, others, their = task(kinds, SHOTS)
    fast = net.clone()
    learned(fast, adam(fast, state), x, y, 30)
    fast.eval()
    with torch.no_grad(): return (fast(others).argmax(1) != their).float().mean().item()*WAYS/(WAYS - 1)


def train(parts: Parts, record) -> float:
    net, optimizer, state = parts.model, parts.optimizer, None
    with record.on(net, optimizer):
        for i, (x, y) in enumerate(parts.data):
            optimizer.param_groups[0]["lr"] = 1 - i/TASKS
            fast = net.clone()
            of_fast = adam(fast, state)
            loss = learned(fast, of_fast, x, y, STEPS)
            state = of_fast.state_dict()
            net.point_grad_to(fast)
            optimizer.step()
            record.step(loss)
    return sum(wrong(net, state, parts.new) for _ in range(20))/20
