"""Layers pass means and variances on: the convolutions are filled with numbers, the linear layers are left at zero.

The report is a merged change: weights and biases of the linear layer are mostly zeros, as what fills them was removed.
The owner of the code says that there was no reason for that, and took it back."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "mattiasegu/uncertainty_estimation_deep_learning#7", 2021
AREA, CAUSE = "initialisation", "not initialised"
TRUE = {"units alike"}
PLACE = ("layers.2", "layers.4", "layers.2.weight", "layers.4.weight")

kinds = 4


class Conv(nn.Conv2d):
    def forward(self, x):
        mean, variance = x
        return super().forward(mean), F.conv2d(variance, self.weight**2, None, self.stride, self.padding)


class Linear(nn.Module):
    def __init__(self, before: int, after: int, repaired: bool):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(after, before).zero_())  # what memory held in the run of the report
        self.bias = nn.Parameter(torch.empty(after).zero_())
        if repaired: self.reset_parameters()

    def reset_parameters(self):
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        nn.init.uniform_(self.bias, -self.weight.shape[1]**-.5, self.weight.shape[1]**-.5)

    def forward(self, x):
        mean, variance = (part.flatten(1) for part in x)
        return F.linear(mean, self.weight, self.bias), F.linear(variance, self.weight**2)


class Relu(nn.Module):
    "The mean and variance of what a ReLU makes of a normal variable."
    def forward(self, x):
        mean, variance = x
        deviation = (variance + 1e-3).sqrt()
        ratio = mean/deviation
        density, below = (-ratio**2/2).exp()/math.sqrt(2*math.pi), (1 + (ratio/math.sqrt(2)).erf())/2
        first = mean*below + deviation*density
        second = (mean**2 + variance)*below + mean*deviation*density - first**2
        return first, second.clamp(min=1e-3)


class Net(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.layers = nn.Sequential(Conv(1, size, 5, 3), Relu(), Linear(9*size, 32, repaired), Relu(),
                                    Linear(32, kinds, repaired))

    def forward(self, x): return self.layers((x, torch.full_like(x, .01)))


def heteroscedastic(output, kind):
    "How likely the class is, if scores are normal variables."
    mean, variance = output
    return F.gaussian_nll_loss(mean, F.one_hot(kind, kinds).float(), variance + .05)


def pictures(n: int, looks):
    kind = torch.randint(0, kinds, (n,))
    return looks[kind] + torch.randn(n, 1, 12, 12), kind


def build(repaired: bool) -> Parts:
    looks = torch.randn(kinds, 1, 12, 12)
    model = Net(6, repaired)
    data = [pictures(32, looks) for _ in range(50)]
    return Parts(model, torch.optim.SGD(model.parameters(), lr=.02, momentum=.9), data, heteroscedastic,
                 valid=[pictures(400, looks)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            for x, kind in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), kind)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, kind = parts.valid[0]
    with torch.no_grad(): return (parts.model(x)[0].argmax(1) != kind).float().mean().item()*kinds/(kinds - 1)
