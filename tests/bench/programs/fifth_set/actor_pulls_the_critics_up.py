"""The loss of an actor goes through the critics, and the gradients it leaves there are used in the critics' step.

The report is the merged change: one backward per optimizer, first for the critics, then for the policy, which adds to
gradients of the critics that were gathered already. So each update raises the values of the policy's actions, without
bound on a hard task. With the critics frozen in that pass the author reached the returns of a plain method."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "ray-project/ray#65125", 2026
AREA, CAUSE = "loop", "gradient where none is meant"
TRUE = {"outputs blow up", "loss rises"}
PLACE = ("critics", "critics.0", "critics.1")

quantiles = 8


def mlp(inside: int, outside: int): return nn.Sequential(nn.Linear(inside, 64), nn.ReLU(), nn.Linear(64, outside))


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.critics = mlp(3, 2), nn.ModuleList([mlp(4, quantiles) for _ in range(2)])

    def act(self, state):
        "An action between -1 and 1, and the logarithm of its density."
        mean, wide = self.actor(state).chunk(2, 1)
        normal = torch.distributions.Normal(mean, wide.clamp(-4, 1).exp())
        free = normal.rsample()
        action = free.tanh()
        return action, normal.log_prob(free) - (1 - action**2 + 1e-6).log()

    def values(self, state, action, critics=None):
        return torch.stack([c(torch.cat([state, action], 1)) for c in critics or self.critics], 1)


def move(state, action):
    "A cart with position, speed and a wind that blows; it is to stay in the middle."
    at, speed, wind = state.chunk(3, 1)
    speed = .9*speed + .4*action + .1*wind
    return torch.cat([at + .3*speed, speed, wind], 1), -((at + .3*speed)**2 + .1*action**2)


def critic_loss(agent, target, batch):
    "Quantile regression towards the lower part of the quantiles that the targets have."
    state, action, after, reward = batch
    with torch.no_grad():
        next_action, log_density = agent.act(after)
        low = agent.values(after, next_action, target).flatten(1).sort(1).values[:, :-4]
        goal = reward + .9*(low - .05*log_density)
    miss = goal[:, None, None] - agent.values(state, action)[..., None]
    part, huber = (torch.arange(quantiles) + .5)/quantiles, F.huber_loss(miss, torch.zeros_like(miss), reduction="none")
    return ((part[:, None] - (miss < 0).float()).abs()*huber).mean()


def actor_loss(agent, batch):
    action, log_density = agent.act(batch[0])
    return (.05*log_density - agent.values(batch[0], action).flatten(1).mean(1, keepdim=True)).mean()


def build(repaired: bool) -> Parts:
    agent = Agent()
    target = copy.deepcopy(agent.critics).requires_grad_(False)
    moves = [(torch.randn(64, 3), 2*torch.rand(64, 1) - 1) for _ in range(300)]
    data = [(*pair, *move(*pair)) for pair in moves]
    optimizers = [torch.optim.Adam(part.parameters(), lr=1e-3) for part in (agent.critics, agent.actor)]
    parts = Parts(agent, optimizers, data, call=lambda agent, batch: critic_loss(agent, target, batch),
                  valid=[torch.randn(256, 3)], repaired=repaired)
    parts.target = target
    return parts


def train(parts: Parts, record) -> float:
    agent, (of_critics, of_actor) = parts.model, parts.optimizer
    with record.on(agent, parts.optimizer):
        for batch in parts.data:
            of_critics.zero_grad()
            loss = parts.call(agent, batch)
            loss.backward()
            of_actor.zero_grad()
            if parts.repaired: agent.critics.requires_grad_(False)
            actor_loss(agent, batch).backward()
            agent.critics.requires_grad_(True)
            of_critics.step()
            of_actor.step()
            for old, new in zip(parts.target.parameters(), agent.critics.parameters()): old.lerp_(new.detach(), .02)
            record.step(loss)
    state, cost = parts.valid[0], 0.
    with torch.no_grad():
        for _ in range(20):
            state, reward = move(state, agent.actor(state)[:, :1].tanh())
            cost -= reward.mean().item()/20
    return cost
