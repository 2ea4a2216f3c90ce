"""A soft actor-critic for few actions weighs values by the chances of actions and takes the mean of them, not the sum.

The report: training is not stable. The change calculates the expectations over the policy properly, in the
target and in the loss of the policy; its author saw it converge more stably, and it was merged."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "p-christ/Deep-Reinforcement-Learning-Algorithms-with-PyTorch#60", 2020
AREA, CAUSE = "loss and task", "wrong reduction"
TRUE = set()
PLACE = ()
SIDE, DISCOUNT, ALPHA = 6, .95, .03
GOAL, moves = torch.tensor([4, 5]), torch.tensor([[0, 1], [1, 0], [0, -1], [-1, 0]])


class Agent(nn.Module):
    "Which way to go from a cell, and what two critics think of each way."
    def __init__(self):
        super().__init__()
        self.actor, self.first, self.second = (nn.Sequential(nn.Linear(2*SIDE, 48), nn.ReLU(), nn.Linear(48, 48),
                                                             nn.ReLU(), nn.Linear(48, 4)) for _ in range(3))

    def least(self, cell): return torch.min(self.first(cell), self.second(cell))


def as_input(at): return F.one_hot(at, SIDE).flatten(1).float()


def step(at, way):
    after = (at + moves[way]).clamp(0, SIDE - 1)
    there = (after == GOAL).all(1)
    return after, there*1. - .02, there


def plays(n: int):
    "Cells, ways out of them, rewards, the cells that follow, and whether the goal was reached."
    at, way = torch.randint(SIDE, (n, 2)), torch.randint(4, (n,))
    after, reward, there = step(at, way)
    return as_input(at), way, reward, as_input(after), there


def expected(values, repaired: bool): return values.sum(1) if repaired else values.mean(1)


def build(repaired: bool) -> Parts:
    model = Agent()
    of_critics = torch.optim.Adam([*model.first.parameters(), *model.second.parameters()], lr=3e-3)
    optimizers = [torch.optim.Adam(model.actor.parameters(), lr=3e-3), of_critics]

    def call(model, batch, target=None):
        "What the critics lose."
        cell, way, reward, after, there = batch
        with torch.no_grad():
            log_chance = model.actor(after).log_softmax(1)
            later = expected(log_chance.exp()*((target or model).least(after) - ALPHA*log_chance), repaired)
            aim = reward + DISCOUNT*later*~there
        first, second = (critic(cell)[torch.arange(len(way)), way] for critic in (model.first, model.second))
        return F.mse_loss(first, aim) + F.mse_loss(second, aim)

    return Parts(model, optimizers, [plays(128) for _ in range(400)], call=call, repaired=repaired)


def train(parts: Parts, record) -> float:
    model, target, (of_actor, of_critics) = parts.model, copy.deepcopy(parts.model), parts.optimizer
    with record.on(model, parts.optimizer):
        for batch in parts.data:
            loss = parts.call(model, batch, target)
            of_critics.zero_grad()
            loss.backward()
            of_critics.step()
            log_chance = model.actor(batch[0]).log_softmax(1)
            cost = log_chance.exp()*(ALPHA*log_chance - model.least(batch[0]).detach())
            of_actor.zero_grad()
            expected(cost, parts.repaired).mean().backward()
            of_actor.step()
            with torch.no_grad():
                for old, new in zip(target.parameters(), model.parameters()): old.lerp_(new, .05)
            record.step(loss)
    at, reached = torch.randint(SIDE - 3, (400, 2)), torch.zeros(400, dtype=torch.bool)
    for _ in range(14):
        with torch.no_grad(): way = torch.distributions.Categorical(logits=model.actor(as_input(at))).sample()
        at, _, there = step(at, way)
        reached |= there
    return 1 - reached.float().mean().item()
