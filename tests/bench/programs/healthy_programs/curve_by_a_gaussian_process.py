"""A Gaussian process fits a noisy curve: three numbers are learned from the marginal likelihood of all points.

Habits of the source: the only parameters are raw numbers that begin at zero and go through a softplus, and a constant
mean; the model gives the prior in training mode and the posterior in eval mode, so that what it returns means another
thing there; the loss is minus the likelihood per point and becomes negative; Adam with a rate of 0.1 for 50 steps.
Error: squared error between the points over the variance of the curve: 0.01; untrained 0.3 to 0.4; a constant 1."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "cornellius-gp/gpytorch examples/01_Exact_GPs/Simple_GP_Regression.ipynb", 2019


class ExactGP(nn.Module):
    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y
        self.raw_noise, self.mean = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
        self.raw_outputscale, self.raw_lengthscale = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(1, 1))

    @property
    def noise(self): return F.softplus(self.raw_noise) + 1e-4

    def kernel(self, a, b):
        apart = (a[:, None] - b)/F.softplus(self.raw_lengthscale)
        return F.softplus(self.raw_outputscale)*(-.5*apart**2).exp()

    def factor(self): return torch.linalg.cholesky(self.kernel(self.x, self.x) + self.noise*torch.eye(len(self.x)))

    def forward(self, x):
        "In training mode the mean and the Cholesky factor at the known points, otherwise the posterior mean at `x`."
        if self.training: return self.mean.expand(len(x)), self.factor()
        weights = torch.cholesky_solve((self.y - self.mean)[:, None], self.factor())
        return self.mean + (self.kernel(x, self.x) @ weights)[:, 0]


def loss_of(prior, y):
    mean, factor = prior
    rest = torch.linalg.solve_triangular(factor, (y - mean)[:, None], upper=False)
    return .5*(rest.pow(2).sum() + 2*factor.diagonal().log().sum() + len(y)*math.log(2*math.pi))/len(y)


def build(repaired: bool) -> Parts:
    phase = 6.283*torch.rand(())
    def curve(x): return (2*math.pi*x + phase).sin()
    x = torch.linspace(0, 1, 60)
    y = curve(x) + .2*torch.randn(60)
    between = torch.linspace(.01, .99, 200)
    model, valid = ExactGP(x, y), [(between, curve(between))]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=.1), [(x, y)], loss_of, valid=valid)


def train(parts: Parts, record) -> float:
    model, optimizer, (x, y) = parts.model, parts.optimizer, parts.data[0]
    model.train()
    with record.on(model, optimizer):
        for _ in range(50):
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            record.step(loss)
    model.eval()
    between, wanted = parts.valid[0]
    with torch.no_grad(): return (F.mse_loss(model(between), wanted)/wanted.var()).item()
