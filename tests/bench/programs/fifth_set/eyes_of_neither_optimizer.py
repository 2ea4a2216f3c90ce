"""Actor and critic share convolutions, and have one optimizer each: neither has the convolutions.

The report: the weights of the convolutions are not updated in the classes for pictures, as the optimizers are made from
the parameters of the actor's and the critic's own layers. The maintainers closed it with a change."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "SforAiDl/genrl#315", 2020
AREA, CAUSE = "parameters", "not in the optimizer"
TRUE = set()
PLACE = ("feature", "feature.0", "feature.2", "feature.0.weight", "feature.0.bias", "feature.2.weight",
         "feature.2.bias")

side, actions, steps = 12, 4, 4


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.feature = nn.Sequential(nn.Conv2d(2, 4, 4, stride=2), nn.ReLU(), nn.Conv2d(4, 4, 3, stride=2), nn.ReLU(),
                                     nn.Flatten())
        self.actor = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, actions))
        self.critic = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x):
        x = self.feature(x)
        return torch.distributions.Categorical(logits=self.actor(x)), self.critic(x)[:, 0]


class Field:
    "Somebody sees food to the left, right, above or below, and may go one step; the last frame is seen, too."
    def __init__(self, n: int):
        self.n, self.before = n, torch.zeros(n, side, side)
        self.show()

    def show(self):
        self.good = torch.randint(0, actions, (self.n,))
        at = torch.randint(3, side - 3, (self.n, 2))
        food = at + 2*torch.tensor([[0, -1], [0, 1], [-1, 0], [1, 0]])[self.good]
        self.now, every = .2*torch.randn(self.n, side, side), torch.arange(self.n)
        self.now[every, at[:, 0], at[:, 1]] += 2
        self.now[every, food[:, 0], food[:, 1]] -= 2

    def seen(self): return torch.stack([self.now, self.before], 1)

    def go(self, action):
        reward = (action == self.good).float()
        self.before = self.now
        self.show()
        return reward


def build(repaired: bool) -> Parts:
    model = ActorCritic()
    own = [*model.actor.parameters()], [*model.critic.parameters()]
    if repaired: own[0].extend(model.feature.parameters())
    optimizers = [torch.optim.Adam(parameters, lr=5e-3) for parameters in own]
    field = Field(32)
    return Parts(model, optimizers, [field.seen() for _ in range(20)], valid=[Field(500)],
                 call=lambda model, x: -model(x)[0].entropy().mean() + model(x)[1].square().mean(), repaired=repaired)


def train(parts: Parts, record) -> float:
    field, (policy, value) = Field(32), parts.optimizer
    with record.on(parts.model, parts.optimizer):
        for _ in range(300):
            logs, values, rewards, surprise = [], [], [], []
            for _ in range(steps):
                odds, worth = parts.model(field.seen())
                action = odds.sample()
                logs.append(odds.log_prob(action))
                surprise.append(odds.entropy())
                values.append(worth)
                rewards.append(field.go(action))
            returns = torch.stack(rewards)
            returns, values = (returns - .25), torch.stack(values)
            actor_loss = -(torch.stack(logs)*(returns - values.detach())).mean() - .01*torch.stack(surprise).mean()
            critic_loss = F.mse_loss(values, returns)
            policy.zero_grad()
            value.zero_grad()
            (actor_loss + .5*critic_loss).backward()
            policy.step()
            value.step()
            record.step(actor_loss + .5*critic_loss)
    field = parts.valid[0]
    with torch.no_grad(): action = parts.model(field.seen())[0].probs.argmax(1)
    return (1 - field.go(action).mean().item())*actions/(actions - 1)
