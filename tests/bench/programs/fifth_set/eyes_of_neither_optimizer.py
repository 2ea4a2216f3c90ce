"""Actor and critic share convolutions, and have one optimizer each: neither has the convolutions.

The report: the weights of the convolutions are not updated in the classes for pictures, as the optimizers are made from
the parameters of the actor's and the critic's own layers. It comes from the code itself; the report was closed."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "SforAiDl/genrl#315", 2020
AREA, CAUSE = "parameters", "not in the optimizer"
TRUE = set()
PLACE = ("feature", *(f"feature.{i}{of}" for i in (0, 2) for of in ("", ".weight", ".bias")))

side, actions, steps = 12, 4, 4


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.feature = nn.Sequential(nn.Conv2d(2, 4, 4, stride=2), nn.ReLU(), nn.Conv2d(4, 4, 3, stride=2), nn.ReLU(),
                                     nn.Flatten())
        self.actor = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, actions))
        self.critic = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x):
        return torch.distributions.Categorical(logits=self.actor(x := self.feature(x))), self.critic(x)[:, 0]


class Field:
    "Somebody sees food to the left, right, above or below, and may go one step; the last frame is seen, too."
    def __init__(self, n: int):
        self.n, self.now = n, torch.zeros(n, side, side)
        self.show()

    def show(self):
        self.before, self.good = self.now, torch.randint(0, actions, (self.n,))
        at = torch.randint(3, side - 3, (self.n, 2))
        food = at + 2*torch.tensor([[0, -1], [0, 1], [-1, 0], [1, 0]])[self.good]
        self.now, every = .2*torch.randn(self.n, side, side), torch.arange(self.n)
        self.now[every, at[:, 0], at[:, 1]] += 2
        self.now[every, food[:, 0], food[:, 1]] -= 2

    def seen(self): return torch.stack([self.now, self.before], 1)

    def go(self, action):
        reward = (action == self.good).float()
        self.show()
        return reward


@torch.no_grad()
def play(model, field):
    "A few steps of all who are in the field: what they saw and did, and how much it brought."
    seen, did, brought = [], [], []
    for _ in range(steps):
        seen.append(field.seen())
        did.append(model(seen[-1])[0].sample())
        brought.append(field.go(did[-1]))
    return torch.cat(seen), torch.cat(did), torch.cat(brought)


def both_losses(model, batch):
    seen, did, brought = batch
    odds, value = model(seen)
    actor_loss = -(odds.log_prob(did)*(brought - value.detach())).mean() - .01*odds.entropy().mean()
    return actor_loss + .5*F.mse_loss(value, brought)


def build(repaired: bool) -> Parts:
    model = ActorCritic()
    own = [*model.actor.parameters()], [*model.critic.parameters()]
    if repaired: own[0].extend(model.feature.parameters())
    optimizers = [torch.optim.Adam(parameters, lr=5e-3) for parameters in own]
    return Parts(model, optimizers, [play(model, Field(32)) for _ in range(4)], call=both_losses)


def train(parts: Parts, record) -> float:
    field = Field(32)
    with record.on(parts.model, parts.optimizer):
        for _ in range(300):
            loss = parts.call(parts.model, play(parts.model, field))
            for optimizer in parts.optimizer: optimizer.zero_grad()
            loss.backward()
            for optimizer in parts.optimizer: optimizer.step()
            record.step(loss)
    field = Field(500)
    action = parts.model(field.seen())[0].probs.argmax(1)
    return (1 - field.go(action).mean().item())*actions/(actions - 1)
