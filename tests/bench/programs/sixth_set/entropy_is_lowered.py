"""The entropy of a policy is added to its loss, where it has to be taken away, so the policy soon explores nothing.

The report is the merged change of the maintainers: PPO should raise the entropy and lowers it. They had not noticed
because the weight of the term is zero by default."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "PKU-Alignment/omnisafe#133", 2023
AREA, CAUSE = "loss and task", "wrong sign"
TRUE = set()
PLACE = ("log_std",)
STEPS, DISCOUNT, WEIGHT = 12, .95, .03


class Walker(nn.Module):
    "A push along a line and what can be expected, by two networks, and how far pushes vary."
    def __init__(self):
        super().__init__()
        self.push = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
        self.value = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
        self.log_std = nn.Parameter(torch.full((1,), -.5))

    def policy(self, at): return torch.distributions.Normal(self.push(at), self.log_std.exp())


def start(n: int): return torch.cat([.1*torch.randn(n, 1), torch.zeros(n, 1)], 1)


def step(at, push):
    "A little reward waits on the right, a larger one further away on the left."
    place = (at[:, :1] + .3*push.clamp(-1, 1)).clamp(-3, 3)
    reward = .3*(-(place - .8)**2/.1).exp() + (-(place + 1.6)**2/.2).exp()
    return torch.cat([place, at[:, 1:] + 1/STEPS], 1), reward.squeeze(1)


@torch.no_grad()
def play(model, n: int):
    at, seen = start(n), []
    for _ in range(STEPS):
        push = model.policy(at).sample()
        after, reward = step(at, push)
        seen.append((at, push, model.policy(at).log_prob(push).squeeze(1), reward))
        at = after
    total, returns = torch.zeros(n), []
    for *_, reward in reversed(seen):
        total = reward + DISCOUNT*total
        returns.append(total)
    states, pushes, log_prob, _ = (torch.cat(part) for part in zip(*seen))
    returns = torch.cat(returns[::-1])
    gain = returns - model.value(states).squeeze(1)
    return states, pushes, log_prob, returns, (gain - gain.mean())/(gain.std() + 1e-8)


def build(repaired: bool) -> Parts:
    model = Walker()
    sign = -1 if repaired else 1

    def call(model, batch):
        states, pushes, old, returns, gain = batch
        policy = model.policy(states)
        ratio = (policy.log_prob(pushes).squeeze(1) - old).exp()
        of_policy = -torch.min(ratio*gain, ratio.clamp(.8, 1.2)*gain).mean() + sign*WEIGHT*policy.entropy().mean()
        return of_policy + .5*F.mse_loss(model.value(states).squeeze(1), returns)

    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    return Parts(model, optimizer, [play(model, 32) for _ in range(4)], call=call)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(50):
            batch = play(model, 32)
            for _ in range(8):
                loss = parts.call(model, batch)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), .5)
                optimizer.step()
                record.step(loss)
    at, total = start(200), torch.zeros(200)
    for _ in range(STEPS):
        with torch.no_grad(): at, reward = step(at, model.push(at))
        total += reward
    return 1 - total.mean().item()/7
