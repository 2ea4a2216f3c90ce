"""A policy without noise and two critics that learn twice as often, for an arm that has to turn to an angle.

Habits of the source: noise is added to the action of the answer and clipped; the smaller of two slow critics counts;
policy and slow copies move every second time only; the policy asks the first critic alone; the critic's gradients of
that are not cleared until its own step; the memory begins with actions at random.
Score: the cost of the policy by that of no push. Below .3; about 1 for the untrained policy."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "sfujim/TD3 TD3.py", 2018
LONG, ARMS, DISCOUNT = 25, 8, .95


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2, self.l3 = nn.Linear(3, 48), nn.Linear(48, 48), nn.Linear(48, 1)

    def forward(self, state): return 2*torch.tanh(self.l3(F.relu(self.l2(F.relu(self.l1(state))))))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2, self.l3 = nn.Linear(4, 48), nn.Linear(48, 48), nn.Linear(48, 1)
        self.l4, self.l5, self.l6 = nn.Linear(4, 48), nn.Linear(48, 48), nn.Linear(48, 1)

    def first(self, state, action):
        return self.l3(F.relu(self.l2(F.relu(self.l1(torch.cat([state, action], 1))))))

    def forward(self, state, action):
        second = self.l6(F.relu(self.l5(F.relu(self.l4(torch.cat([state, action], 1))))))
        return self.first(state, action), second


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.critic = Actor(), Critic()
        self.slow_actor, self.slow_critic = copy.deepcopy(self.actor), copy.deepcopy(self.critic)


def start(n: int): return torch.stack([2*torch.pi*torch.rand(n) - torch.pi, torch.randn(n)], 1)


def seen(arm): return torch.stack([arm[:, 0].cos(), arm[:, 0].sin(), arm[:, 1]], 1)


def pushed(arm, action):
    "The arm after a push against friction, and the reward: the angle has to be 0."
    speed = (.9*arm[:, 1] + .6*action[:, 0]).clamp(-8, 8)
    angle = (arm[:, 0] + .3*speed + torch.pi) % (2*torch.pi) - torch.pi
    return torch.stack([angle, speed], 1), -(angle**2 + .1*speed**2 + .001*action[:, 0]**2)[:, None]


def call(agent, batch):
    state, action, after, reward = batch
    with torch.no_grad():
        noise = (.4*torch.randn_like(action)).clamp(-1, 1)
        later = (agent.slow_actor(after) + noise).clamp(-2, 2)
        wanted = reward + DISCOUNT*torch.min(*agent.slow_critic(after, later))
    one, two = agent.critic(state, action)
    return F.mse_loss(one, wanted) + F.mse_loss(two, wanted)


def at_random(n: int): return 4*torch.rand(n, 1) - 2


def build(repaired: bool) -> Parts:
    agent, arm, action = Agent(), start(1000), at_random(1000)
    after, reward = pushed(arm, action)
    optimizers = [torch.optim.Adam(agent.critic.parameters(), lr=1e-3),
                  torch.optim.Adam(agent.actor.parameters(), lr=1e-3)]
    return Parts(agent, optimizers, list(zip(*(c.split(100) for c in (seen(arm), action, seen(after), reward)))),
                 call=call)


def train(parts: Parts, record) -> float:
    agent, (of_critic, of_actor), memory = parts.model, parts.optimizer, [torch.cat(c) for c in zip(*parts.data)]
    with record.on(agent, parts.optimizer):
        for i in range(700):
            if i % LONG == 0: arm = start(ARMS)
            with torch.no_grad(): action = (agent.actor(seen(arm)) + .2*torch.randn(ARMS, 1)).clamp(-2, 2)
            after, reward = pushed(arm, action)
            memory = [torch.cat([old, new]) for old, new in zip(memory, (seen(arm), action, seen(after), reward))]
            arm, rows = after, torch.randint(len(memory[0]), (128,))
            state, *rest = (column[rows] for column in memory)
            loss = parts.call(agent, (state, *rest))
            of_critic.zero_grad()
            loss.backward()
            of_critic.step()
            if i % 2 == 0:
                of_actor.zero_grad()
                (-agent.critic.first(state, agent.actor(state)).mean()).backward()
                of_actor.step()
                with torch.no_grad():
                    for mine, its in ((agent.slow_actor, agent.actor), (agent.slow_critic, agent.critic)):
                        for slow, quick in zip(mine.parameters(), its.parameters()): slow.lerp_(quick, .02)
            record.step(loss)
    arm = idle = start(500)
    cost = idle_cost = 0
    for _ in range(LONG):
        with torch.no_grad(): arm, reward = pushed(arm, agent.actor(seen(arm)))
        idle, reward_of_idle = pushed(idle, torch.zeros(500, 1))
        cost, idle_cost = cost - reward.mean().item(), idle_cost - reward_of_idle.mean().item()
    return cost/idle_cost
