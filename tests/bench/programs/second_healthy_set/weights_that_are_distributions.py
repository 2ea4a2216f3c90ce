"""A convolutional net whose weights have a mean and a spread each, for small pictures of four kinds.

Habits of the source: what is drawn is the result of each layer, not the weights, when validating too, where the net
stays in training mode (it has neither norms nor dropout); the loss is the mean error times the number of all examples
and a tenth of the divergence from the prior, so it is in the thousands; spreads begin very small, at the softplus of
-5; softplus between the layers; means of likelihoods of several draws; a rate that waits for the loss of validation.
Score: the part of wrong kinds of new pictures. Below .15; about .75 for the untrained model."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "kumar-shridhar/PyTorch-BayesianCNN main_bayesian.py", 2018
KINDS, PRIOR, EXAMPLES, DRAWS = 4, .1, 640, 2


class Drawn(nn.Module):
    "A layer that draws its results from what means and spreads of its weights say of them."
    def __init__(self, apply, *shape):
        super().__init__()
        self.apply_weights = apply
        self.mean, self.raw = nn.Parameter(torch.empty(shape)), nn.Parameter(torch.empty(shape))
        self.bias, self.raw_bias = nn.Parameter(torch.empty(shape[0])), nn.Parameter(torch.empty(shape[0]))
        for weight in (self.mean, self.bias): nn.init.normal_(weight, 0, .1)
        for weight in (self.raw, self.raw_bias): nn.init.normal_(weight, -5, .1)

    def forward(self, x):
        mean = self.apply_weights(x, self.mean, self.bias)
        variance = 1e-16 + self.apply_weights(x**2, F.softplus(self.raw)**2, F.softplus(self.raw_bias)**2)
        return mean + variance.sqrt()*torch.randn_like(mean)

    def divergence(self):
        def of(mean, raw):
            spread = F.softplus(raw)
            return .5*(2*(PRIOR/spread).log() - 1 + (spread/PRIOR)**2 + (mean/PRIOR)**2).sum()
        return of(self.mean, self.raw) + of(self.bias, self.raw_bias)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        def conv(x, weight, bias): return F.conv2d(x, weight, bias, padding=1)
        self.first, self.second = Drawn(conv, 8, 1, 3, 3), Drawn(conv, 16, 8, 3, 3)
        self.out, self.act, self.pool = Drawn(F.linear, KINDS, 64), nn.Softplus(), nn.MaxPool2d(2)

    def forward(self, x):
        for layer in (self.first, self.second): x = self.pool(self.act(layer(x)))
        divergence = sum(layer.divergence() for layer in (self.first, self.second, self.out))
        return self.out(x.flatten(1)), divergence


def likelihoods(net, x):
    "The mean of the likelihoods of several draws as a logarithm, and the divergence."
    drawn = [net(x) for _ in range(DRAWS)]
    scores = torch.stack([scores.log_softmax(1) for scores, _ in drawn])
    return scores.logsumexp(0) - math.log(DRAWS), drawn[0][1]


def call(net, batch):
    said, divergence = likelihoods(net, batch[0])
    return F.nll_loss(said, batch[1])*EXAMPLES + .1*divergence


def pictures(n: int):
    "Bars and crosses somewhere in noise."
    kinds, x = torch.randint(KINDS, (n,)), torch.zeros(n, 1, 8, 8)
    for kind, picture in zip(kinds.tolist(), x):
        row, column = torch.randint(2, 6, (2,)).tolist()
        for i in range(-2, 3):
            for down, right in ([(0, 1)], [(1, 0)], [(0, 1), (1, 0)], [(1, 1)])[kind]:
                picture[0, min(row + i*down, 7), min(column + i*right, 7)] = 1
    return x + .2*torch.randn_like(x), kinds


def build(repaired: bool) -> Parts:
    net, data, valid = Net(), pictures(EXAMPLES), pictures(128)
    return Parts(net, torch.optim.Adam(net.parameters(), lr=5e-3), list(zip(*(c.split(64) for c in data))), call=call,
                 valid=list(zip(*(c.split(64) for c in valid))))


def train(parts: Parts, record) -> float:
    net, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=6)
    with record.on(net, optimizer):
        for _ in range(25):
            net.train()
            for batch in parts.data:
                optimizer.zero_grad()
                loss = parts.call(net, batch)
                loss.backward()
                optimizer.step()
                record.step(loss)
            with torch.no_grad(): schedule.step(sum(parts.call(net, batch).item() for batch in parts.valid))
    x, kinds = pictures(400)
    with torch.no_grad(): return (likelihoods(net, x)[0].argmax(1) != kinds).float().mean().item()
