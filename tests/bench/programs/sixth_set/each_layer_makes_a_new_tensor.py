"""Each layer of a Bayesian network makes a tensor of its input, also when that is the output of the layer before it.

The report, by the author, on an example: making a tensor a second time seemed to keep it from converging, perhaps as it
cuts the gradient. Doing so once, at the top, worked; the change was merged."""
import warnings

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "brendanhasz/probflow#65", 2021
AREA, CAUSE = "parameters", "detached part"
TRUE = {"loss reaches one layer"}
PLACE = ("layers.0", "layers.1")

samples = 1600


class Belief(nn.Module):
    "A normal distribution over a weight."
    def __init__(self, *shape):
        super().__init__()
        self.mean, self.raw = nn.Parameter(torch.randn(shape)*(1/shape[0])**.5), nn.Parameter(torch.full(shape, -4.))

    def forward(self):
        if not self.training: return self.mean
        return self.mean + F.softplus(self.raw)*torch.randn_like(self.mean)

    def kl(self):
        spread = F.softplus(self.raw)
        return (spread**2 + self.mean**2 - 1 - 2*spread.log()).sum()/2


class Dense(nn.Module):
    def __init__(self, inputs: int, outputs: int, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.weight, self.bias = Belief(inputs, outputs), Belief(1, outputs)

    def forward(self, x):
        if not self.repaired: x = torch.tensor(x)
        return x @ self.weight() + self.bias()


class Network(nn.Module):
    def __init__(self, sizes: list[int], repaired: bool):
        super().__init__()
        self.layers = nn.ModuleList([Dense(*pair, repaired) for pair in zip(sizes, sizes[1:])])
        self.spread = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        x = torch.as_tensor(x)
        for layer in self.layers[:-1]: x = layer(x).relu()
        return self.layers[-1](x)

    def kl(self): return sum(layer.weight.kl() + layer.bias.kl() for layer in self.layers)


def points(n: int):
    "Two numbers; the target has a ridge that runs around, and some noise."
    x = 2*torch.rand(n, 2) - 1
    return x, (5*(x**2).sum(1, keepdim=True).sqrt() + 2*x[:, :1]).sin() + .1*torch.randn(n, 1)


def build(repaired: bool) -> Parts:
    model = Network([2, 24, 24, 1], repaired)

    def call(model, batch):
        guess = torch.distributions.Normal(model(batch[0]), F.softplus(model.spread))
        return -guess.log_prob(batch[1]).mean() + .05*model.kl()/samples

    x, y = points(samples)
    data = [(x[i:i + 32], y[i:i + 32]) for i in range(0, samples, 32)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-2), data, call=call, valid=[points(1000)])


def train(parts: Parts, record) -> float:
    with warnings.catch_warnings(), record.on(parts.model, parts.optimizer):
        warnings.simplefilter("ignore")  # torch warns of a tensor made of a tensor
        for _ in range(12):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
        x, y = parts.valid[0]
        with torch.no_grad(): return (F.mse_loss(parts.model.eval()(x), y)/y.var()).item()
