"""A policy is learned from the moves that others made, and nothing is tried out.

Habits of the source: the value of a state is drawn to the upper part of the values of moves by a lopsided square, with
the slow copy of the critics; critics learn from that value; the policy copies moves, each with a weight that is the
exponential of its advantage, at most 100; its spread is one number per action; three optimizers and three gradients one
after the other, set to None; a cosine for the policy's rate only; the last move of an episode has no later value.
Score: the mean cost by that of the moves in the data. Below .6; about 2 for the untrained policy."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "gwthomas/IQL-PyTorch src/iql.py", 2021
LONG, STEPS, DISCOUNT, UPPER, SHARP = 12, 500, .95, .8, 5.


def net(n: int, out: int): return nn.Sequential(nn.Linear(n, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(),
                                                nn.Linear(48, out))


class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        self.critics = nn.ModuleList(net(4, 1) for _ in range(2))
        self.slow = copy.deepcopy(self.critics).requires_grad_(False)
        self.value, self.policy, self.logstd = net(2, 1), net(2, 2), nn.Parameter(torch.zeros(2))

    def chances(self, state): return torch.distributions.Normal(self.policy(state), self.logstd.clamp(-5, 2).exp())


def moved(state, action):
    "A boat in a current goes where it is pushed; the reward is higher the nearer it is to the middle."
    after = state + .3*action.clamp(-1, 1) + .1*torch.stack([-state[:, 1], state[:, 0]], 1)
    after = after.clamp(-2, 2)
    return after, 1 - after.norm(dim=1)


def moves(n: int):
    "Episodes of people of whom some steer towards the middle and some anywhere."
    state, skill, kept = 3*torch.rand(n, 2) - 1.5, torch.rand(n, 1), []
    for time in range(LONG):
        action = (-2*state*skill + .7*torch.randn(n, 2)).clamp(-1, 1)
        after, reward = moved(state, action)
        kept.append((state, action, after, reward, torch.full((n,), time == LONG - 1)))
        state = after
    return [torch.cat(column) for column in zip(*kept)]


def lopsided(gap): return ((UPPER - (gap < 0).float()).abs()*gap**2).mean()


def losses(learner, batch):
    "The loss of the value, and those of critics and policy to be called after steps before them."
    state, action, after, reward, last = batch
    with torch.no_grad():
        both = torch.cat([state, action], 1)
        aim, later = torch.min(*(critic(both) for critic in learner.slow)).squeeze(1), learner.value(after).squeeze(1)
    gap = aim - learner.value(state).squeeze(1)
    def of_critics():
        wanted = reward + (~last).float()*DISCOUNT*later
        return sum(F.mse_loss(critic(both).squeeze(1), wanted) for critic in learner.critics)/2
    def of_policy():
        weight = (SHARP*gap.detach()).exp().clamp(max=100)
        return -(weight*learner.chances(state).log_prob(action).sum(1)).mean()
    return lopsided(gap), of_critics, of_policy


def call(learner, batch):
    value, of_critics, of_policy = losses(learner, batch)
    return value + of_critics() + of_policy()


def build(repaired: bool) -> Parts:
    learner = Learner()
    data, held = moves(300), moves(20)
    optimizers = [torch.optim.Adam(weights, lr=2e-3) for weights in
                  (learner.value.parameters(), learner.critics.parameters(),
                   [*learner.policy.parameters(), learner.logstd])]
    order = torch.randperm(len(data[0]))
    return Parts(learner, optimizers, list(zip(*(column[order].split(120) for column in data))), call=call,
                 valid=list(zip(*(column.split(120) for column in held))))


def train(parts: Parts, record) -> float:
    learner, data = parts.model, [torch.cat(column) for column in zip(*parts.data)]
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(parts.optimizer[2], STEPS)
    with record.on(learner, parts.optimizer):
        for _ in range(STEPS):
            rows = torch.randint(len(data[0]), (128,))
            value, of_critics, of_policy = losses(learner, [column[rows] for column in data])
            total = 0
            for optimizer, make in zip(parts.optimizer, (lambda value=value: value, of_critics, of_policy)):
                loss = make()
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                total += loss.item()
                if make is of_critics:
                    with torch.no_grad():
                        for slow, quick in zip(learner.slow.parameters(), learner.critics.parameters()):
                            slow.lerp_(quick, .02)
            schedule.step()
            record.step(total)
    state, cost = 3*torch.rand(400, 2) - 1.5, 0
    for _ in range(LONG):
        with torch.no_grad(): state, reward = moved(state, learner.policy(state))
        cost += (1 - reward).mean().item()/LONG
    return cost/(1 - data[3]).mean().item()
