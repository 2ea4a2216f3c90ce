"""Recorded demonstrations have the same observation for all actions of a chunk: that of its beginning.

The report is the merged change: a policy that gives out many actions at once was recorded with the observation before
the first of them, so that a model trained on it sees one picture with many actions. Now each step is recorded with its
own observation."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "strands-labs/robots#798", 2026
AREA, CAUSE = "data and labels", "labels do not belong to inputs"
TRUE = set()
PLACE = ()

chunk, steps = 12, 24


class Policy(nn.Module):
    "What to do next, from where the hand, the thing and the goal are."
    def __init__(self, size: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(7, size), nn.ReLU(), nn.Linear(size, size), nn.ReLU(), nn.Linear(size, 3))

    def forward(self, seen): return self.layers(seen)


class Table:
    "A hand that goes to a thing, takes it, and puts it down at a goal."
    def __init__(self, n: int):
        self.hand, self.thing, self.goal = 2*torch.rand(3, n, 2) - 1
        self.closed = torch.zeros(n, 1)

    def seen(self): return torch.cat([self.hand, self.thing, self.goal, self.closed], 1)

    def expert(self):
        near = (self.thing - self.hand).norm(dim=1, keepdim=True) < .15
        aim = torch.where(self.closed > .5, self.goal, self.thing) - self.hand
        return torch.cat([(.7*aim).clamp(-.25, .25), ((self.closed > .5) | near).float()], 1)

    def step(self, action):
        self.hand = self.hand + action[:, :2].clamp(-.25, .25)
        near = (self.thing - self.hand).norm(dim=1, keepdim=True) < .3
        self.closed = ((action[:, 2:] > .5) & (near | (self.closed > .5))).float()
        self.thing = torch.where(self.closed > .5, self.hand, self.thing)


def demonstrations(n: int, repaired: bool):
    table, seen, actions = Table(n), [], []
    for i in range(steps):
        if repaired or i % chunk == 0: observation = table.seen()
        action = table.expert()
        seen.append(observation)
        actions.append(action)
        table.step(action)
    return torch.cat(seen), torch.cat(actions)


def build(repaired: bool) -> Parts:
    model = Policy(96)
    seen, actions = demonstrations(400, repaired)
    data = [(seen[rows], actions[rows]) for rows in torch.randperm(len(seen)).split(64)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=2e-3), data, F.mse_loss,
                 valid=[demonstrations(50, repaired)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            for seen, action in parts.data:
                loss = parts.loss(parts.model(seen), action)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    table = Table(200)
    before = (table.thing - table.goal).norm(dim=1).mean()
    with torch.no_grad():
        for _ in range(steps): table.step(parts.model(table.seen()))
    return ((table.thing - table.goal).norm(dim=1).mean()/before).item()
