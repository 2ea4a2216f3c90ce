"""The world says that its pictures are int8, so the buffer cuts off what is behind the point of normal numbers.

The report is a change to a library of worlds for reinforcement learning: in a small test world the type of what is seen
was int8, and a model failed to learn it. Its author says that it converges with float32."""
import torch
from torch import nn
from torch.distributions import Categorical
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "PufferAI/PufferLib#85", 2024
AREA, CAUSE = "precision", "rounded"
TRUE = set()
PLACE = ()


class Agent(nn.Module):
    "Two answers, one for the picture and one for the row of signs beside it, and what reward to expect."
    def __init__(self, size: int):
        super().__init__()
        self.picture, self.row = nn.Linear(25, size), nn.Linear(5, size)
        self.join = nn.Linear(2*size, size)
        self.first, self.second, self.value = nn.Linear(size, 2), nn.Linear(size, 2), nn.Linear(size, 1)
        for head in (self.first, self.second): nn.init.orthogonal_(head.weight, .01)

    def forward(self, picture, row):
        x = torch.cat([self.picture(picture.flatten(1).float()), self.row(row.float())], 1).relu()
        x = self.join(x).relu()
        return Categorical(logits=self.first(x)), Categorical(logits=self.second(x)), self.value(x)[:, 0]


class World:
    "One point for saying the sign of the sum of a picture, one for that of a row."
    def __init__(self, kind: torch.dtype):
        self.kind = kind

    def reset(self, n: int):
        self.picture, self.row = torch.randn(n, 5, 5), torch.randint(0, 2, (n, 5))*2 - 1
        return self.picture.to(self.kind), self.row.to(torch.int8)

    def step(self, first, second):
        return ((self.picture.sum((1, 2)) > 0) == first).float() + ((self.row.sum(1) > 0) == second).float()


@torch.no_grad()
def play(agent, world, n: int):
    seen = world.reset(n)
    first, second, value = agent(*seen)
    actions = first.sample(), second.sample()
    reward = world.step(*actions)
    gain = reward - value
    density = first.log_prob(actions[0]) + second.log_prob(actions[1])
    return *seen, *actions, density, reward, (gain - gain.mean())/(gain.std() + 1e-8)


def clipped(agent, batch):
    picture, row, one, two, before, reward, gain = batch
    first, second, value = agent(picture, row)
    ratio = (first.log_prob(one) + second.log_prob(two) - before).exp()
    policy = torch.min(ratio*gain, ratio.clamp(.8, 1.2)*gain).mean()
    return F.mse_loss(value, reward)/2 - policy - .01*(first.entropy() + second.entropy()).mean()


def build(repaired: bool) -> Parts:
    agent, world = Agent(32), World(torch.float32 if repaired else torch.int8)
    optimizer = torch.optim.Adam(agent.parameters(), lr=5e-3, eps=1e-5)
    return Parts(agent, optimizer, [play(agent, world, 128) for _ in range(4)], call=clipped, repaired=repaired)


def train(parts: Parts, record) -> float:
    agent, world = parts.model, World(torch.float32 if parts.repaired else torch.int8)
    with record.on(agent, parts.optimizer):
        for _ in range(60):
            rows = play(agent, world, 512)
            for chosen in torch.randperm(512).split(128):
                loss = parts.call(agent, [part[chosen] for part in rows])
                parts.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), .5)
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad(): first, second, _ = agent(*world.reset(2048))
    return 1 - world.step(first.logits.argmax(1), second.logits.argmax(1)).mean().item()/2
