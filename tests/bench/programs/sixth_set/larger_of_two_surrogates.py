"""A minus sign was moved into the minimum of the two surrogates of PPO, so it takes the larger one and clips nothing.

The report is the merged change of the maintainer, who found that the loss of the policy has the negative sign
distributed through a `min`."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "jvmncs/safe-grid-agents#28", 2018
AREA, CAUSE = "loss and task", "wrong sign"
TRUE = set()
PLACE = ()
SIDE, DISCOUNT, STEPS = 5, .95, 16

lava = torch.zeros(SIDE, SIDE, dtype=torch.bool)
lava[1, 2] = lava[3, 1:3] = True
GOAL, moves = torch.tensor([2, 4]), torch.tensor([[0, 1], [1, 0], [0, -1], [-1, 0]])


class Walker(nn.Module):
    "Which way to go from a cell, and what can be expected there."
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2*SIDE, 64), nn.Tanh())
        self.way, self.value = nn.Linear(64, 4), nn.Linear(64, 1)

    def forward(self, at):
        hidden = self.body(F.one_hot(at, SIDE).flatten(1).float())
        return torch.distributions.Categorical(logits=self.way(hidden)), self.value(hidden).squeeze(1)


def start(n: int): return torch.stack([torch.randint(SIDE, (n,)), torch.zeros(n, dtype=torch.long)], 1)


def step(at, way):
    after = (at + moves[way]).clamp(0, SIDE - 1)
    burnt, there = lava[after[:, 0], after[:, 1]], (after == GOAL).all(1)
    return after, there*1. - burnt*1. - .05, burnt | there


@torch.no_grad()
def play(model, at):
    "Some steps of many walkers; one that has ended is set to a start again."
    seen = []
    for _ in range(STEPS):
        way, value = model(at)
        chosen = way.sample()
        after, reward, done = step(at, chosen)
        seen.append((at, chosen, way.log_prob(chosen), value, reward, done))
        at = torch.where(done.unsqueeze(1), start(len(at)), after)
    total, returns = model(at)[1], []
    for *_, reward, done in reversed(seen):
        total = reward + DISCOUNT*total*~done
        returns.append(total)
    states, chosen, log_prob, value, *_ = (torch.cat(part) for part in zip(*seen))
    returns = torch.cat(returns[::-1])
    return (states, chosen, log_prob, returns, returns - value), at


def build(repaired: bool) -> Parts:
    model = Walker()

    def call(model, batch):
        states, chosen, old, returns, gain = batch
        way, value = model(states)
        ratio, gain = (way.log_prob(chosen) - old).exp(), (gain - gain.mean())/(gain.std() + 1e-8)
        free, clipped = ratio*gain, ratio.clamp(.8, 1.2)*gain
        of_policy = -torch.min(free, clipped) if repaired else torch.min(-free, -clipped)
        return of_policy.mean() + .5*F.mse_loss(value, returns) - .01*way.entropy().mean()

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    return Parts(model, optimizer, [play(model, start(16))[0] for _ in range(4)], call=call)


def train(parts: Parts, record) -> float:
    model, optimizer, at = parts.model, parts.optimizer, start(16)
    with record.on(model, optimizer):
        for _ in range(40):
            batch, at = play(model, at)
            for _ in range(8):
                loss = parts.call(model, batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
    at, alive, reached = start(500), torch.ones(500, dtype=torch.bool), torch.zeros(500)
    for _ in range(12):
        with torch.no_grad(): at, reward, done = step(at, model(at)[0].sample())
        reached += (reward > 0)*alive
        alive &= ~done
    return 1 - reached.mean().item()
