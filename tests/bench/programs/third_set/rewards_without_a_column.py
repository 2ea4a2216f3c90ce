"""Rewards have one dimension and values two, so each value is trained towards the rewards of the whole batch.

The report is the merged change of a Q-learning example: rewards of the shape [128] were broadcast against [128, 1], and
got the shape [128, 1] as well."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "Lazydok/RL-Pytorch-cartpole#2", 2020
AREA, CAUSE = "loss and task", "labels broadcast"
TRUE = set()
PLACE = ()

pushes = torch.tensor([[-.1, 0.], [.1, 0], [0, -.1], [0, .1]])


class Values(nn.Module):
    "What each of four pushes is worth."
    def __init__(self, size: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, size), nn.ReLU(), nn.Linear(size, size), nn.ReLU(), nn.Linear(size, 4))

    def forward(self, place): return self.layers(place)


def step(place, action):
    "A ball on a plate; it is paid for being near the middle."
    place = (place + pushes[action] + .02*torch.randn_like(place)).clamp(-1, 1)
    return place, 1 - place.norm(dim=1)


def played(n: int, repaired: bool):
    place, action = 2*torch.rand(n, 2) - 1, torch.randint(4, (n,))
    after, reward = step(place, action)
    return place, action.unsqueeze(1), reward.unsqueeze(1) if repaired else reward, after


def build(repaired: bool) -> Parts:
    model, target = Values(48), Values(48)

    def call(model, batch):
        place, action, reward, after = batch
        value = model(place).gather(1, action)
        with torch.no_grad(): expected = reward + .9*target(after).max(1, keepdim=True).values
        return F.smooth_l1_loss(value, expected)

    parts = Parts(model, torch.optim.RMSprop(model.parameters(), lr=1e-3),
                  [played(128, repaired) for _ in range(60)], call=call, valid=[played(256, repaired)])
    parts.target = target
    return parts


def train(parts: Parts, record) -> float:
    model = parts.model
    with record.on(model, parts.optimizer):
        for _ in range(10):
            parts.target.load_state_dict(model.state_dict())
            for batch in parts.data:
                loss = parts.call(model, batch)
                parts.optimizer.zero_grad()
                loss.backward()
                for p in model.parameters(): p.grad.clamp_(-1, 1)
                parts.optimizer.step()
                record.step(loss)
    place = parts.valid[0][0]
    start = place.norm(dim=1).mean()
    with torch.no_grad():
        for _ in range(20): place, _ = step(place, model(place).argmax(1))
    return (place.norm(dim=1).mean()/start).item()
