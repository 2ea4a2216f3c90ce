"""The slow update of a target network goes to tensors that the target no longer uses, so the target stays as it was.

The report, a merged change: the soft update was not applied to the target network, because its weights had been taken
out of it to be shared. Here they are copies that were taken when the agent was made."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "AgileRL/AgileRL#464", 2026
AREA, CAUSE = "parameters", "target network"
TRUE = set()
PLACE = ()

# A field of cells with walls; an action goes one step, and the last cell ends the game and earns one.
side, fade = 5, .9
cells = torch.cartesian_prod(torch.arange(side), torch.arange(side))
moved = cells[:, None] + torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])
wall = (moved < 0).any(2) | (moved >= side).any(2) | ((moved[..., 0] == 2) & (moved[..., 1] > 0))
after = torch.where(wall, torch.arange(side**2)[:, None], moved[..., 0]*side + moved[..., 1])
won = (after == side**2 - 1).float()
seen = F.one_hot(torch.arange(side**2)).float()


class Agent:
    "A network for the values of the actions, and one that follows it slowly."
    def __init__(self, net, repaired: bool):
        self.net, self.target = net, copy.deepcopy(net).requires_grad_(False)
        weights = list(self.target.parameters())
        self.shared = weights if repaired else [weight.clone() for weight in weights]

    def loss(self, net, batch):
        at, action = batch
        to, earned = after[at, action], won[at, action]
        with torch.no_grad(): then = self.target(seen[to]).max(1).values
        value = net(seen[at]).gather(1, action[:, None])[:, 0]
        return F.mse_loss(value, earned + fade*(1 - earned)*then)

    @torch.no_grad()
    def soft_update(self):
        for mine, weight in zip(self.shared, self.net.parameters()): mine.lerp_(weight, .05)


def build(repaired: bool) -> Parts:
    net = nn.Sequential(nn.Linear(side**2, 64), nn.ReLU(), nn.Linear(64, 4))
    agent = Agent(net, repaired)
    data = [(torch.randint(0, side**2 - 1, (64,)), torch.randint(0, 4, (64,))) for _ in range(600)]
    parts = Parts(net, torch.optim.Adam(net.parameters(), lr=3e-3), data, call=agent.loss)
    parts.agent = agent
    return parts


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for batch in parts.data:
            loss = parts.call(parts.model, batch)
            parts.optimizer.zero_grad()
            loss.backward()
            parts.optimizer.step()
            parts.agent.soft_update()
            record.step(loss)
    truth = torch.zeros(side**2, 4)
    for _ in range(60): truth = won + fade*(1 - won)*truth.max(1).values[after]
    with torch.no_grad(): found = parts.model(seen)
    return (F.mse_loss(found[:-1], truth[:-1])/truth[:-1].var()).item()
