"""The logarithm of a normal density has the deviation in it where the logarithm of the deviation belongs.

The report: in a library for Bayesian layers, the log-likelihood of the sampled weights takes sigma, not its logarithm.
So a weight that becomes certain costs next to nothing. The correction was merged by the maintainer."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "piEsposito/blitz-bayesian-deep-learning#15", 2020
AREA, CAUSE = "loss and task", "the loss takes another form"
TRUE = set()
PLACE = ()


def log_normal(x, mean, sigma, logarithm: bool = True):
    height = sigma.log() if logarithm else sigma
    return (-.5*math.log(2*math.pi) - height - (x - mean)**2/(2*sigma**2)).sum()


class Sampler(nn.Module):
    "Weights with a mean and a deviation each; a new sample of them in each call."
    def __init__(self, *shape: int, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.mean, self.rho = nn.Parameter(.1*torch.randn(shape)), nn.Parameter(-4 + .1*torch.randn(shape))
        self.cost = torch.zeros(())

    def forward(self):
        sigma = F.softplus(self.rho)
        weight = self.mean + sigma*torch.randn_like(sigma)
        prior = log_normal(weight, torch.zeros(()), torch.tensor(.5))
        self.cost = log_normal(weight, self.mean, sigma, self.repaired) - prior
        return weight


class Bayesian(nn.Module):
    def __init__(self, inside: int, outside: int, repaired: bool):
        super().__init__()
        self.weight, self.bias = (Sampler(*size, repaired=repaired) for size in ((outside, inside), (outside,)))

    def forward(self, x): return F.linear(x, self.weight(), self.bias())


def houses(n: int, slopes):
    "Few rows of a table with many columns, brought to a deviation of one, and a price with noise."
    x = torch.randn(n, 12)
    return x, (x[:, :6] @ slopes[:6] + (x[:, 6:] @ slopes[6:]).relu() + 1.*torch.randn(n))[:, None]/3


def elbo(model, batch):
    "Mean of three samples: squared error, and the cost of the weights in parts for the batches of an epoch."
    x, y = batch
    samplers = [part for part in model.modules() if isinstance(part, Sampler)]
    total = 0.
    for _ in range(3): total = total + F.mse_loss(model(x), y) + sum(part.cost for part in samplers)/model.rows
    return total/3


def build(repaired: bool) -> Parts:
    slopes = torch.randn(12)
    model = nn.Sequential(Bayesian(12, 24, repaired), nn.ReLU(), Bayesian(24, 1, repaired))
    x, y = houses(96, slopes)
    model.rows = len(x)
    data = list(zip(x.split(32), y.split(32)))
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-2), data, call=elbo, valid=[houses(500, slopes)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(50):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, y = parts.valid[0]
    with torch.no_grad(): made = torch.stack([parts.model(x) for _ in range(50)])
    beyond = (y - made.mean(0)).abs() - 1.96*made.std(0)
    return ((2*1.96*made.std(0) + 40*beyond.relu()).mean()/y.std()).item()
