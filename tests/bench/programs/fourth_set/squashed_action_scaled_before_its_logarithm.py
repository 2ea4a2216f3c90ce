"""The density of a squashed action is corrected with the scaled action: the logarithm of a negative number.

The report: in a soft actor-critic the actions reach from -2 to 2, and the correction takes the logarithm of one minus
their square, which gives NaN. The reporter proposed to take the tanh before it is scaled; the maintainer agreed and
merged that."""
import copy

import torch
from torch import nn
from torch.distributions import Normal
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "cpnota/autonomous-learning-library#139", 2020
AREA, CAUSE = "precision", "NaN or Inf"
TRUE = set()
PLACE = ()
DISCOUNT, WARMTH, REACH = .8, .02, 2.


def dense(before: int, size: int, after: int):
    return nn.Sequential(nn.Linear(before, size), nn.ReLU(), nn.Linear(size, size), nn.ReLU(), nn.Linear(size, after))


class Agent(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.actor, self.first, self.second = dense(2, size, 2), dense(3, size, 1), dense(3, size, 1)
        self.repaired = repaired

    def act(self, state):
        mean, deviation = self.actor(state).chunk(2, 1)
        normal = Normal(mean, deviation.clamp(-4, 1).exp(), False)
        raw = normal.rsample()
        squashed = raw.tanh() if self.repaired else REACH*raw.tanh()
        return REACH*raw.tanh(), (normal.log_prob(raw) - (1 - squashed**2 + 1e-6).log()).sum(1)

    def values(self, state, action):
        both = torch.cat([state, action], 1)
        return self.first(both)[:, 0], self.second(both)[:, 0]


def move(state, action):
    "A cart on a line: a force changes its speed; it is to stand still in the middle."
    place, speed = state.unbind(1)
    speed = (.9*speed + .3*action[:, 0]).clamp(-2, 2)
    place = (place + .5*speed).clamp(-3, 3)
    return torch.stack([place, speed], 1), 1 - place.abs() - .1*speed.abs()


def plays(n: int):
    state, action = torch.stack([6*torch.rand(n) - 3, 2*torch.rand(n) - 1], 1), REACH*(2*torch.rand(n, 1) - 1)
    after, reward = move(state, action)
    return state, action, reward, after


def critic_loss(model, batch, target=None):
    state, action, reward, after = batch
    with torch.no_grad():
        next_action, log_density = model.act(after)
        least = torch.min(*(target or model).values(after, next_action))
        aim = reward + DISCOUNT*(least - WARMTH*log_density)
    return sum(F.mse_loss(value, aim) for value in model.values(state, action))


def build(repaired: bool) -> Parts:
    model = Agent(32, repaired)
    optimizers = [torch.optim.Adam(parameters, lr=2e-3) for parameters in (
        model.actor.parameters(), [*model.first.parameters(), *model.second.parameters()])]
    return Parts(model, optimizers, [plays(128) for _ in range(300)], call=critic_loss)


def train(parts: Parts, record) -> float:
    model, target, (of_actor, of_critics) = parts.model, copy.deepcopy(parts.model), parts.optimizer
    with record.on(model, parts.optimizer):
        for batch in parts.data:
            loss = critic_loss(model, batch, target)
            of_critics.zero_grad()
            loss.backward()
            of_critics.step()
            action, log_density = model.act(batch[0])
            of_actor.zero_grad()
            (WARMTH*log_density - torch.min(*model.values(batch[0], action))).mean().backward()
            of_actor.step()
            with torch.no_grad():
                for old, new in zip(target.parameters(), model.parameters()): old.lerp_(new, .05)
            record.step(loss)
    state, lost = plays(256)[0], 0.
    with torch.no_grad():
        for _ in range(20):
            state, reward = move(state, REACH*model.actor(state)[:, :1].tanh())
            lost = lost + (1 - reward).mean()/20
    return lost.item()
