"""Returns have one dimension and values two, so their difference has a row for each step and a column for each step.

The report is a merged change of a library for reinforcement learning by its maintainer: the shape of returns minus
values in the actor and critic is wrong, and that of the chances differs from it with the kind of action."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "thu-ml/tianshou#155", 2020
AREA, CAUSE = "loss and task", "labels broadcast"
TRUE = {"samples alike", "constant output"}
PLACE = ("critic", "critic.0", "critic.2")
LONGEST = 40


class Walker(nn.Module):
    "Which way to go towards a place, and how well it will go."
    def __init__(self, size: int):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, size), nn.ReLU(), nn.Linear(size, 4))
        self.critic = nn.Sequential(nn.Linear(4, size), nn.ReLU(), nn.Linear(size, 1))


def start(n: int): return 2*torch.rand(n, 4) - 1


def go(state, way):
    "A step of .15 in one of four directions; a reward of one for the place, which moves when it is reached."
    step = torch.tensor([[.15, 0], [-.15, 0], [0, .15], [0, -.15]])[way]
    where, goal = state[:, :2] + step, state[:, 2:]
    far = (where - goal).square().sum(1).sqrt()
    there = far < .2
    fresh = start(len(state))
    moved = torch.where(there[:, None], fresh, torch.cat([where.clamp(-1, 1), goal], 1))
    return moved, there.float()


@torch.no_grad()
def play(model, state, steps: int):
    "Some steps of many walkers, with the sum of the rewards from each on, and what the critic expects behind them."
    states, ways, rewards = [], [], []
    for _ in range(steps):
        way = torch.distributions.Categorical(logits=model.actor(state)).sample()
        states.append(state)
        ways.append(way)
        state, reward = go(state, way)
        rewards.append(reward)
    total, sums = model.critic(state).flatten(), []
    for reward in reversed(rewards):
        total = reward + .9*total
        sums.append(total)
    return (torch.cat(states), torch.cat(ways), torch.cat(sums[::-1])), state


def all_losses(model, batch, repaired: bool):
    states, ways, returns = batch
    value = model.critic(states)
    if repaired: returns = returns[:, None]
    choice = torch.distributions.Categorical(logits=model.actor(states))
    chance = choice.log_prob(ways)
    if repaired: chance = chance[:, None]
    actor = -(chance*(returns - value).detach()).mean()
    return actor + .5*(returns - value).square().mean() - .01*choice.entropy().mean()


def build(repaired: bool) -> Parts:
    model = Walker(32)

    def call(model, batch): return all_losses(model, batch, repaired)

    data = [play(model, start(64), 2)[0] for _ in range(4)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3), data, call=call)


def train(parts: Parts, record) -> float:
    model, state = parts.model, start(64)
    with record.on(model, parts.optimizer):
        for _ in range(300):
            batch, state = play(model, state, 2)
            parts.optimizer.zero_grad()
            loss = parts.call(model, batch)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.)
            parts.optimizer.step()
            record.step(loss)
    state, reached = start(256), torch.zeros(256)
    for _ in range(LONGEST):
        with torch.no_grad(): state, reward = go(state, model.actor(state).argmax(1))
        reached += (reward > 0).float()
    return 1 - reached.mean().item()/LONGEST*8
