"""A policy learns to keep a pole upright from the returns of one episode at a time.

Habits of the source: one optimizer step for each episode, of any length, from batches of single steps; a large dropout
in the policy, which is left on while it acts, since it explores by that too; returns normalized within the episode with
a small constant beside the deviation; the sum of the losses of all steps; a high rate; chances by a softmax.
Score: the part of a hundred steps that the pole does not stand, pushed by chance as in training. Below .5; about .8
untrained."""
import math

import torch
from torch import nn
from torch.distributions import Categorical
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pytorch/examples reinforcement_learning/reinforce.py", 2017
LONGEST = 100


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.dropout, self.second = nn.Linear(4, 64), nn.Dropout(.4), nn.Linear(64, 2)

    def forward(self, x): return F.softmax(self.second(F.relu(self.dropout(self.first(x)))), 1)


class Pole:
    "On a cart that is pushed to the left or to the right; one for each step that it stands."
    def reset(self):
        self.state, self.steps = (.1*torch.rand(4) - .05).tolist(), 0
        return torch.tensor([self.state])

    def step(self, action: int):
        x, v, angle, turn = self.state
        sine, cosine = math.sin(angle), math.cos(angle)
        pressed = (20*action - 10 + .05*turn**2*sine)/1.1
        twist = (9.8*sine - cosine*pressed)/(.5*(4/3 - .1*cosine**2/1.1))
        self.state = [x + .02*v, v + .02*(pressed - .05*twist*cosine/1.1), angle + .02*turn, turn + .02*twist]
        self.steps += 1
        fell = abs(self.state[0]) > 2.4 or abs(self.state[2]) > .2095
        return torch.tensor([self.state]), 1., fell or self.steps == LONGEST


def episode(policy):
    "What was seen, what was done and what came of it."
    pole, done, kept = Pole(), False, []
    state = pole.reset()
    while not done:
        with torch.no_grad(): action = Categorical(policy(state)).sample()
        after, reward, done = pole.step(action.item())
        kept.append((state, action, reward))
        state = after
    states, actions, rewards = zip(*kept)
    returns = []
    for reward in reversed(rewards): returns.insert(0, reward + .99*(returns[0] if returns else 0))
    return torch.cat(states), torch.cat(actions), torch.tensor(returns)


def call(policy, batch):
    states, actions, returns = batch
    scaled = (returns - returns.mean())/(returns.std() + 1e-4)
    return -(Categorical(policy(states)).log_prob(actions)*scaled).sum()


def build(repaired: bool) -> Parts:
    policy = Policy()
    data = [episode(policy) for _ in range(10)]
    return Parts(policy, torch.optim.Adam(policy.parameters(), lr=1e-2), data, call=call)


def train(parts: Parts, record) -> float:
    policy, optimizer = parts.model, parts.optimizer
    with record.on(policy, optimizer):
        for _ in range(150):
            loss = parts.call(policy, episode(policy))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            record.step(loss)
    policy.eval()
    return 1 - sum(len(episode(policy)[0]) for _ in range(20))/20/LONGEST
