"""A Gaussian process of many points is held up by a few, whose places are learned with all else.

Habits of the source: batches of a process that is one for all points; a bound that is a mean of the batch less the
divergence divided by the number of all points; what is learned is a mean of zeros and a triangle that begins as one,
in coordinates that make the prior plain, so that the divergence is zero at first; sizes are positive by softplus;
the noise is a parameter of its own group; a little is added to the diagonal before each Cholesky step.
Score: the squared error of the mean by the variance of held-out values. Below .1; about 1 for the untrained one."""
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE = "cornellius-gp/gpytorch examples/04_Variational_and_Approximate_GPs/SVGP_Regression_CUDA.ipynb"
YEAR, POINTS, HELD_UP = 2019, 1000, 40


class Process(nn.Module):
    def __init__(self, places):
        super().__init__()
        self.places, self.constant = nn.Parameter(places.clone()), nn.Parameter(torch.zeros(()))
        self.mean, self.triangle = nn.Parameter(torch.zeros(len(places))), nn.Parameter(torch.eye(len(places)))
        self.raw_scale, self.raw_lengths = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(places.shape[1]))

    def kernel(self, one, two):
        gap = one[:, None]/F.softplus(self.raw_lengths) - two/F.softplus(self.raw_lengths)
        return F.softplus(self.raw_scale)*(-.5*gap.square().sum(2)).exp()

    def forward(self, x):
        "Mean and variance at each place."
        root = torch.linalg.cholesky(self.kernel(self.places, self.places) + 1e-3*torch.eye(len(self.places)))
        near = torch.linalg.solve_triangular(root, self.kernel(self.places, x), upper=False)
        spread = (self.triangle.tril().T @ near).square().sum(0)
        return self.constant + self.mean @ near, F.softplus(self.raw_scale) - near.square().sum(0) + spread

    def divergence(self):
        triangle = self.triangle.tril()
        logs = triangle.diagonal().abs().log().sum()
        return .5*(triangle.square().sum() + self.mean.square().sum() - len(self.mean)) - logs


class Likelihood(nn.Module):
    def __init__(self):
        super().__init__()
        self.raw_noise = nn.Parameter(torch.zeros(()))

    def forward(self, mean, variance, y):
        "The expected logarithm of the likelihood of each value."
        noise = F.softplus(self.raw_noise) + 1e-4
        return -.5*(((y - mean).square() + variance)/noise + noise.log() + math.log(2*math.pi))


class Both(nn.Module):
    def __init__(self, places):
        super().__init__()
        self.process, self.likelihood = Process(places), Likelihood()

    def forward(self, x): return self.process(x)


def call(model, batch):
    x, y = batch
    return -(model.likelihood(*model(x), y).mean() - model.process.divergence()/POINTS)


def points(n: int):
    x = torch.rand(n, 2)*2 - 1
    return TensorDataset(x, torch.sin(4*x[:, 0]) + x[:, 1]*torch.cos(3*x[:, 0]) + .1*torch.randn(n))


def build(repaired: bool) -> Parts:
    data = points(POINTS)
    model = Both(data.tensors[0][:HELD_UP])
    optimizer = torch.optim.Adam([{"params": model.process.parameters()}, {"params": model.likelihood.parameters()}],
                                 lr=.02)
    return Parts(model, optimizer, DataLoader(data, 100, shuffle=True), call=call, valid=DataLoader(points(300), 100))


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    model.train()
    with record.on(model, optimizer):
        for _ in range(20):
            for batch in parts.data:
                optimizer.zero_grad()
                loss = parts.call(model, batch)
                loss.backward()
                optimizer.step()
                record.step(loss)
    model.eval()
    x, y = parts.valid.dataset.tensors
    with torch.no_grad(): return (F.mse_loss(model(x)[0], y)/y.var()).item()
