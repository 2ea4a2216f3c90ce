"""The density of points in the plane, by maps that can be turned round.

Habits of the source: of each half the scale and the shift for the other, by a mask that alternates; the net of the
scale has tanh inside and behind, the one of the shift ReLU; batch norm between the maps, whose logarithm of the scale
counts and which takes running statistics in eval mode; the negative logarithm of the likelihood, which may fall below
zero; Adam with a little decay; validation in eval mode.
Score: the loss on held-back points less the true one, by the same for a normal density. Below .2; about 1 untrained."""
import math

import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "kamenbliznashki/normalizing_flows maf.py", 2019


class Coupling(nn.Module):
    def __init__(self, mask):
        super().__init__()
        self.register_buffer("mask", mask)
        self.scale, self.shift = (nn.Sequential(nn.Linear(2, 32), act(), nn.Linear(32, 32), act(), nn.Linear(32, 2))
                                  for act in (nn.Tanh, nn.ReLU))

    def forward(self, x):
        seen, free = x*self.mask, 1 - self.mask
        scale = self.scale(seen).tanh()*free
        return seen + free*(x - self.shift(seen))*(-scale).exp(), -scale.sum(1)


class Norm(nn.Module):
    "Batch norm that says by how much it stretched."
    def __init__(self):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("variance", torch.ones(2))

    def forward(self, x):
        mean, variance = self.mean, self.variance
        if self.training:
            mean, variance = x.mean(0), x.var(0)
            with torch.no_grad():
                self.mean.lerp_(mean, .1)
                self.variance.lerp_(variance, .1)
        stretched = (x - mean)/(variance + 1e-5).sqrt()*self.scale.exp() + self.shift
        return stretched, (self.scale - .5*(variance + 1e-5).log()).sum().expand(len(x))


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        mask = torch.tensor([1., 0.])
        self.maps = nn.ModuleList(part for i in range(4) for part in (Coupling(mask.roll(i)), Norm()))

    def forward(self, x):
        "The logarithm of the density."
        stretch = 0
        for part in self.maps:
            x, more = part(x)
            stretch = stretch + more
        return -.5*(x**2).sum(1) - math.log(2*math.pi) + stretch


def points(n: int):
    "A bent cloud: the second number is near the square of the first."
    first, noise = torch.randn(n), torch.randn(n)
    return torch.stack([first, first**2 - 1 + .15*noise], 1)


def truth(x):
    noise = (x[:, 1] - x[:, 0]**2 + 1)/.15
    return -.5*(x[:, 0]**2 + noise**2) - math.log(2*math.pi) - math.log(.15)


def call(model, x): return -model(x).mean()


def build(repaired: bool) -> Parts:
    model = Flow()
    loader = torch.utils.data.DataLoader(points(4000), batch_size=100, shuffle=True)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-6), loader, call=call,
                 valid=[points(2000)])


def train(parts: Parts, record) -> float:
    model, optimizer, x = parts.model, parts.optimizer, parts.valid[0]
    with record.on(model, optimizer):
        for _ in range(10):
            model.train()
            for batch in parts.data:
                loss = parts.call(model, batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
            model.eval()
            with torch.no_grad(): held = parts.call(model, x)
    best = -truth(x).mean()
    normal = torch.distributions.Normal(x.mean(0), x.std(0))
    return ((held - best)/(-normal.log_prob(x).sum(1).mean() - best)).item()
