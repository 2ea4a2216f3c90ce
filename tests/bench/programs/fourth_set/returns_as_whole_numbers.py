"""Rewards are whole numbers, and so is the array for the returns: what is discounted is cut off behind the point.

The report: a library for reinforcement learning makes the array of returns without saying that it holds fractions, so
it takes the type of the rewards. The maintainer found that the rewards in question were integers, and mended it."""
import torch
from torch import nn
from torch.distributions import Categorical

from tests.bench.programs import Parts

SOURCE, YEAR = "thu-ml/tianshou#85", 2020
AREA, CAUSE = "precision", "rounded"
TRUE = {"loss does not fall", "not trained", "gradients vanish", "constant targets"}
PLACE = ()
DISCOUNT, TIMES = .9, 40


class Policy(nn.Module):
    "Push to the left or to the right."
    def __init__(self, size: int):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, size), nn.Tanh(), nn.Linear(size, size), nn.Tanh(), nn.Linear(size, 2))

    def forward(self, seen): return Categorical(logits=self.net(seen))


def move(seen, action):
    "A stick on a cart: it falls the faster, the more it leans."
    angle, speed = seen.unbind(1)
    speed = speed + .15*angle + .1*(2*action - 1) + .02*torch.randn(len(seen))
    angle = angle + .3*speed
    return torch.stack([angle, speed], 1), angle.abs() < 1


@torch.no_grad()
def play(policy, n: int):
    "Each step before the stick has fallen is worth one."
    seen, stands, rows = .2*torch.randn(n, 2), torch.ones(n, dtype=torch.bool), []
    for _ in range(TIMES):
        action = policy(seen).sample()
        rows.append((seen, action, stands))
        seen, up = move(seen, action)
        stands = stands & up
    seen, action, stands = (torch.stack(column) for column in zip(*rows))
    return seen, action, stands.long()


def returns_of(rewards, repaired: bool):
    returns = torch.zeros_like(rewards, dtype=torch.float32 if repaired else None)
    returns[-1] = rewards[-1]
    for time in reversed(range(len(rewards) - 1)): returns[time] = rewards[time] + DISCOUNT*returns[time + 1]
    return returns


def policy_gradient(policy, batch):
    seen, action, returns = batch
    return -(policy(seen).log_prob(action)*returns).mean()


def gathered(policy, repaired: bool):
    "States, actions and normalized returns of all steps before the sticks have fallen."
    seen, action, rewards = play(policy, 32)
    counts = rewards.bool()
    returns = returns_of(rewards, repaired)[counts].float()
    return seen[counts], action[counts], (returns - returns.mean())/(returns.std() + 1e-8)


def build(repaired: bool) -> Parts:
    policy = Policy(32)
    return Parts(policy, torch.optim.Adam(policy.parameters(), lr=5e-3), [gathered(policy, repaired) for _ in range(3)],
                 call=policy_gradient, repaired=repaired)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(50):
            rows = gathered(parts.model, parts.repaired)
            for chosen in torch.randperm(len(rows[0])).split(128):
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, [part[chosen] for part in rows])
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    return 1 - play(parts.model, 256)[2].float().mean().item()
