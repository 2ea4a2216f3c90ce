"""A policy with noise and two critics are trained off the policy, on a mass that has to come to rest.

Habits of the source: two critics with slow copies, the smaller value counts; actions squashed by tanh, their logarithm
corrected; a policy's step every second time, and then two; the weight of the entropy is learned, with an optimizer of
its own; three optimizers; the critics hold gradients of the policy's loss until their own `zero_grad`.
Score: the cost of the mean action by that of no action. Below .3; about 1 for the untrained policy."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "vwxyzjn/cleanrl cleanrl/sac_continuous_action.py", 2024
LONG, MASSES = 20, 16


def net(*wide):
    return nn.Sequential(nn.Linear(wide[0], wide[1]), nn.ReLU(), nn.Linear(wide[1], wide[2]), nn.ReLU(),
                         nn.Linear(wide[2], wide[3]))


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = net(2, 32, 32, 2)
        self.critics = nn.ModuleList(net(3, 32, 32, 1) for _ in range(2))
        self.copies = nn.ModuleList(net(3, 32, 32, 1) for _ in range(2))
        self.copies.load_state_dict(self.critics.state_dict())

    def act(self, state):
        "An action, the logarithm of its density, and the action without noise."
        mean, spread = self.actor(state).chunk(2, 1)
        noise = torch.distributions.Normal(mean, (3.5*(spread.tanh() + 1) - 5).exp())
        free = noise.rsample()
        action = free.tanh()
        density = noise.log_prob(free) - (1 - action**2 + 1e-6).log()
        return action, density.sum(1, keepdim=True), mean.tanh()


def smaller(critics, state, action):
    both = torch.cat([state, action], 1)
    return torch.min(critics[0](both), critics[1](both))


def start(n: int): return torch.randn(n, 2)*.5


def pushed(state, action):
    "Place and speed after a push between two walls, and the reward."
    place, speed = state.chunk(2, 1)
    speed = .95*speed + .4*action
    after = torch.cat([(place + .4*speed).clamp(-2, 2), speed], 1)
    return after, -(after[:, :1]**2 + .1*after[:, 1:]**2)


def critics_loss(agent, batch, weight: float = .1):
    state, action, reward, after = batch
    with torch.no_grad():
        later, density, _ = agent.act(after)
        wanted = reward + .9*(smaller(agent.copies, after, later) - weight*density)
    return sum(F.mse_loss(critic(torch.cat([state, action], 1)), wanted) for critic in agent.critics)


def build(repaired: bool) -> Parts:
    agent = Agent()
    state, action = start(1000), 2*torch.rand(1000, 1) - 1
    after, reward = pushed(state, action)
    data = list(zip(*(column.split(100) for column in (state, action, reward, after))))
    rate = torch.zeros(1, requires_grad=True)
    optimizers = [torch.optim.Adam(agent.critics.parameters(), lr=1e-3),
                  torch.optim.Adam(agent.actor.parameters(), lr=3e-3), torch.optim.Adam([rate], lr=3e-3)]
    return Parts(agent, optimizers, data, call=critics_loss)


def step(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def train(parts: Parts, record) -> float:
    agent, (of_critics, of_actor, of_weight) = parts.model, parts.optimizer
    log_weight, memory = of_weight.param_groups[0]["params"][0], [torch.cat(c) for c in zip(*parts.data)]
    with record.on(agent, parts.optimizer):
        for i in range(400):
            if i % LONG == 0: state = start(MASSES)
            with torch.no_grad(): action, _, _ = agent.act(state)
            after, reward = pushed(state, action)
            memory = [torch.cat([old, new]) for old, new in zip(memory, (state, action, reward, after))]
            state, weight = after, log_weight.exp().item()
            drawn = [column[rows] for rows in [torch.randint(len(memory[0]), (128,))] for column in memory]
            loss = parts.call(agent, drawn, weight)
            step(of_critics, loss)
            if i % 2 == 0:
                for _ in range(2):
                    action, density, _ = agent.act(drawn[0])
                    step(of_actor, (weight*density - smaller(agent.critics, drawn[0], action)).mean())
                    step(of_weight, (-log_weight.exp()*(density.detach() - 1)).mean())
                    weight = log_weight.exp().item()
            with torch.no_grad():
                for mine, its in zip(agent.copies.parameters(), agent.critics.parameters()): mine.lerp_(its, .02)
            record.step(loss)
    state = idle = start(256)
    cost = cost_of_idle = 0
    for _ in range(LONG):
        with torch.no_grad(): state, reward = pushed(state, agent.act(state)[2])
        idle, reward_of_idle = pushed(idle, torch.zeros(256, 1))
        cost, cost_of_idle = cost - reward.mean().item(), cost_of_idle - reward_of_idle.mean().item()
    return cost/cost_of_idle
