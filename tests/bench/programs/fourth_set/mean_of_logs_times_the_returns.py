"""The logarithms of the chances of all actions are averaged before they are multiplied by the returns of each step.

The report: the tutorial on policy gradients multiplies the mean of the logarithms with the sum of the returns, so that
it does not matter which action came before which reward. The author shows the reward with and without the change, and a
maintainer thanked for the graph."""
import torch
from torch import nn
from torch.distributions import Normal

from tests.bench.programs import Parts

SOURCE, YEAR = "Farama-Foundation/Gymnasium#1336", 2025
AREA, CAUSE = "loop", "wrong reduction"
TRUE = set()
PLACE = ()
STEPS, DISCOUNT = 24, .9


class Policy(nn.Module):
    "The mean and the spread of a push."
    def __init__(self):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 32), nn.Tanh())
        self.mean, self.spread = nn.Linear(32, 1), nn.Linear(32, 1)

    def forward(self, at):
        shared = self.shared(at)
        return Normal(self.mean(shared), nn.functional.softplus(self.spread(shared)) + 1e-2)


def move(at, push):
    "A cart on a rail; the reward is higher the nearer it is to the middle."
    place, speed = at.split(1, 1)
    speed = .9*speed + .3*push.clamp(-1.5, 1.5)
    place = place + .3*speed
    return torch.cat([place, speed], 1), -place.abs().squeeze(1)


@torch.no_grad()
def episodes(model, n: int = 3, best: bool = False):
    at, seen, pushes, rewards = torch.cat([1.5*torch.randn(n, 1), torch.zeros(n, 1)], 1), [], [], []
    for _ in range(STEPS):
        chances = model(at)
        push = chances.mean if best else chances.sample()
        seen.append(at)
        pushes.append(push)
        at, reward = move(at, push)
        rewards.append(reward)
    return torch.stack(seen, 1), torch.stack(pushes, 1), torch.stack(rewards, 1)


def both_losses(model, batch, repaired: bool):
    at, pushes, rewards = batch
    total, returns = torch.zeros(len(rewards)), []
    for reward in rewards.unbind(1)[::-1]:
        total = reward + DISCOUNT*total
        returns.insert(0, total)
    returns = torch.stack(returns, 1)
    logs = model(at.flatten(0, 1)).log_prob(pushes.flatten(0, 1)).view_as(rewards)
    if not repaired: logs = logs.mean(1, keepdim=True)
    return -(logs*returns).sum(1).mean()


def build(repaired: bool) -> Parts:
    model = Policy()
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3), [episodes(model) for _ in range(4)],
                 call=lambda model, batch: both_losses(model, batch, repaired), repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(320):
            batch = episodes(model)
            loss = parts.call(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            record.step(loss)
    return -episodes(model, 256, best=True)[2].mean().item()/1.2
