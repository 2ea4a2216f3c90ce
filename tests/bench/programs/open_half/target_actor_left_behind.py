"""The target of the actor is never updated, so the critic learns the value of the first policy.

The report: an implementation of DDPG moves the target of its critic towards the critic, and forgets the target of its
actor. It was marked as a bug, and the change that adds the update was merged."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "kakaoenterprise/JORLDY#120", 2022
AREA, CAUSE = "loop", "target network"
TRUE = set()
PLACE = ("actor",)
DISCOUNT, GOAL = .8, torch.tensor([.6, -.2])


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(2, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2),
                                   nn.Tanh())
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def value(self, at, action): return self.critic(torch.cat([at, action], 1)).squeeze(1)


def move(at, action):
    "A step in a room; the reward is higher the nearer it ends to the goal."
    after = (at + .3*action).clamp(-1, 1)
    return after, .2*(1 - (after - GOAL).abs().mean(1))


def plays(n: int):
    at, action = 2*torch.rand(n, 2) - 1, 2*torch.rand(n, 2) - 1
    after, reward = move(at, action)
    return at, action, reward, after


def critic_loss(model, batch, target=None):
    at, action, reward, after = batch
    target = target or model
    with torch.no_grad(): aim = reward + DISCOUNT*target.value(after, target.actor(after))
    return F.mse_loss(model.value(at, action), aim)


def build(repaired: bool) -> Parts:
    model = Agent()
    optimizers = [torch.optim.Adam(model.actor.parameters(), lr=1e-3),
                  torch.optim.Adam(model.critic.parameters(), lr=2e-3)]
    return Parts(model, optimizers, [plays(128) for _ in range(500)], call=critic_loss, repaired=repaired)


def train(parts: Parts, record) -> float:
    model, target, (of_actor, of_critic) = parts.model, copy.deepcopy(parts.model), parts.optimizer
    follows = target if parts.repaired else target.critic
    leads = model if parts.repaired else model.critic
    with record.on(model, parts.optimizer):
        for batch in parts.data:
            loss = critic_loss(model, batch, target)
            of_critic.zero_grad()
            loss.backward()
            of_critic.step()
            of_actor.zero_grad()
            (-model.value(batch[0], model.actor(batch[0])).mean()).backward()
            of_actor.step()
            with torch.no_grad():
                for old, new in zip(follows.parameters(), leads.parameters()): old.lerp_(new, .1)
            record.step(loss)
    at = plays(512)[0]
    with torch.no_grad(): found, best = model.value(at, model.actor(at)), 0.
    for time in range(40):
        at, reward = move(at, ((GOAL - at)/.3).clamp(-1, 1))
        best = best + DISCOUNT**time*reward
    return (F.mse_loss(found, best)/best.var()).item()
