"""The actor's loss goes through the critics and leaves its gradients there, and the critics' optimizer steps with them.

The report: critics of many quantiles are not frozen where the actor's loss is computed, and all backward passes run
before any step. Values grow without bound and returns collapse. The change that freezes them was merged; with it the
agent learns as well as others."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "ray-project/ray#65125", 2026
AREA, CAUSE = "loss and task", "gradient where none is meant"
TRUE = {"losses fight", "loss rises", "outputs blow up"}
PLACE = ("critics", "critics.0", "critics.1")
QUANTILES, DROPPED, DISCOUNT, SIZE = 5, 2, .9, 48


def net(inside: int, outside: int):
    return nn.Sequential(nn.Linear(inside, SIZE), nn.ReLU(), nn.Linear(SIZE, SIZE), nn.ReLU(), nn.Linear(SIZE, outside))


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = net(4, 2)
        self.critics = nn.ModuleList(net(6, QUANTILES) for _ in range(2))

    def act(self, state): return self.actor(state).tanh()
    def values(self, *state): return torch.stack([critic(torch.cat(state, 1)) for critic in self.critics], 1)


def start(n: int): return torch.cat([2*torch.rand(n, 2) - 1, torch.zeros(n, 2)], 1)


def push(state, action):
    "A puck on a table is pushed; the reward is high at rest in the middle."
    speed = .8*state[:, 2:] + .2*action
    at = (state[:, :2] + speed).clamp(-1.5, 1.5)
    return torch.cat([at, speed], 1), -at.square().sum(1) - .1*action.square().sum(1)


def critic_loss(model, batch, target):
    state, action, reward, after = batch
    with torch.no_grad(): best = target.values(after, target.act(after)).flatten(1).sort(1)[0][:, :-DROPPED]
    aim = reward[:, None] + DISCOUNT*best
    away = aim[:, None, None] - model.values(state, action)[..., None]
    weight = ((torch.arange(QUANTILES)[:, None] + .5)/QUANTILES - (away < 0).float()).abs()
    return (weight*F.smooth_l1_loss(away, torch.zeros_like(away), reduction="none")).mean()


def actor_loss(model, batch, repaired: bool):
    if repaired: model.critics.requires_grad_(False)
    loss = -model.values(batch[0], model.act(batch[0])).mean()
    model.critics.requires_grad_(True)
    return loss


@torch.no_grad()
def step_of(model, state, noise: float):
    action = (model.act(state) + noise*torch.randn(len(state), 2)).clamp(-1, 1)
    after, reward = push(state, action)
    return (state, action, reward, after), after


def build(repaired: bool) -> Parts:
    model = Agent()
    optimizers = [torch.optim.Adam(part.parameters(), lr=1e-3) for part in (model.critics, model.actor)]
    data = [step_of(model, start(64), 1.)[0] for _ in range(20)]
    def call(model, batch): return critic_loss(model, batch, model) + actor_loss(model, batch, repaired)
    return Parts(model, optimizers, data, call=call, repaired=repaired)


def train(parts: Parts, record) -> float:
    model, memory, state = parts.model, [*parts.data], start(64)
    target = copy.deepcopy(model).requires_grad_(False)
    with record.on(model, parts.optimizer):
        for step in range(400):
            if step % 20 == 0: state = start(64)
            seen, state = step_of(model, state, .3)
            memory.append(seen)
            batch = memory[torch.randint(len(memory), ()).item()]
            losses = critic_loss(model, batch, target), actor_loss(model, batch, parts.repaired)
            model.zero_grad()
            for loss in losses: loss.backward()
            for optimizer in parts.optimizer: optimizer.step()
            for old, new in zip(target.parameters(), model.parameters()): old.lerp_(new.detach(), .02)
            record.step(losses[0])
    state, cost = start(300), 0.
    for _ in range(30):
        (_, _, reward, _), state = step_of(model, state, 0.)
        cost -= reward.mean().item()/30
    return cost
