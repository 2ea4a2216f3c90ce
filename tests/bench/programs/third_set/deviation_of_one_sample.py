"""The last small batch of a rollout has one sample, and the standard deviation of one number is not a number.

The report: training with PPO ends in NaN if the size of the rollout is no multiple of that of a batch. The author
needed days to find it; the merged change does not normalise the advantages of a batch of one."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "DLR-RM/stable-baselines3#1028", 2022
AREA, CAUSE = "precision", "NaN or Inf"
TRUE = set()
PLACE = ()

pushes = torch.tensor([-.2, 0., .2])


class ActorCritic(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(2, size), nn.Tanh(), nn.Linear(size, 3))
        self.critic = nn.Sequential(nn.Linear(2, size), nn.Tanh(), nn.Linear(size, 1))

    def forward(self, state): return self.actor(state), self.critic(state).squeeze(1)


class Cart:
    "Carts that have to be brought to the middle and held there."
    def __init__(self, n: int): self.state = 2*torch.rand(n, 2) - 1

    def step(self, action):
        speed = (self.state[:, 1] + pushes[action] + .02*torch.randn(len(action))).clamp(-1, 1)
        place = (self.state[:, 0] + .3*speed).clamp(-2, 2)
        self.state = torch.stack([place, speed], 1)
        return -place.abs() - .1*speed.abs()


def rollout(model, cart, steps: int = 20):
    "What happened, with advantages and returns."
    seen, rewards = [], []
    with torch.no_grad():
        for _ in range(steps):
            logits, value = model(cart.state)
            action = (logits - torch.empty_like(logits).exponential_().log()).argmax(1)  # drawn with their chances
            seen.append((cart.state, action, logits.log_softmax(1).gather(1, action[:, None]).squeeze(1), value))
            rewards.append(cart.step(action))
        ahead, after, advantage, found = model(cart.state)[1], 0., [], []
        for (*_, value), reward in zip(reversed(seen), reversed(rewards)):
            after = reward + .95*ahead - value + .95*.9*after
            ahead = value
            advantage.insert(0, after)
            found.insert(0, after + value)
    return [torch.cat(part) for part in (*list(zip(*seen))[:3], advantage, found)]


def build(repaired: bool) -> Parts:
    model = ActorCritic(32)

    def call(model, batch):
        state, action, before, advantage, found = batch
        if not repaired or len(advantage) > 1: advantage = (advantage - advantage.mean())/(advantage.std() + 1e-8)
        logits, value = model(state)
        now = logits.log_softmax(1)
        ratio = (now.gather(1, action[:, None]).squeeze(1) - before).exp()
        policy = -torch.minimum(ratio*advantage, ratio.clamp(.8, 1.2)*advantage).mean()
        return policy + .5*F.mse_loss(value, found) + .01*(now.exp()*now).sum(1).mean()

    first = rollout(model, Cart(16))
    data = [[part[rows] for part in first] for rows in torch.arange(320).split(29)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, call=call)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(25):
            happened = rollout(parts.model, Cart(16))
            for _ in range(3):
                for rows in torch.randperm(320).split(29):
                    loss = parts.call(parts.model, [part[rows] for part in happened])
                    parts.optimizer.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(parts.model.parameters(), .5)
                    parts.optimizer.step()
                    record.step(loss)
    cart = Cart(200)
    start = cart.state[:, 0].abs().mean()
    with torch.no_grad():
        for _ in range(20): cart.step(parts.model(cart.state)[0].argmax(1))
    return (cart.state[:, 0].abs().mean()/start).item()
