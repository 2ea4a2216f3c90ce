"""gpytorch: regression with an exact Gaussian process, all points in one batch.

After the tutorial "GPyTorch regression tutorial": the model holds the training data, its output is a distribution, and
the loss is the negative marginal log likelihood. Error: mean squared error on a grid, over the variance."""
import math

import gpytorch
import torch

from tests.bench.programs import Parts

SOURCE = "gpytorch: GPyTorch Regression Tutorial"
PACKAGES = ("gpytorch",)


class ExactGPModel(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x): return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def curve(x): return torch.sin(x*(4*math.pi))


def build() -> Parts:
    x = torch.linspace(0, 1, 60)
    y = curve(x) + .2*torch.randn(60)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = ExactGPModel(x, y, likelihood)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    parts = Parts(model, torch.optim.Adam(model.parameters(), lr=.1), (x, y), lambda output, y: -mll(output, y))
    parts.likelihood = likelihood
    return parts


def error(parts: Parts) -> float:
    parts.model.eval()
    parts.likelihood.eval()
    x = torch.linspace(0, 1, 101)
    with torch.no_grad(): found = parts.likelihood(parts.model(x)).mean
    return ((found - curve(x))**2).mean().item()/curve(x).var().item()


def train(parts: Parts, record) -> float:
    model, optimizer, (x, y) = parts.model, parts.optimizer, parts.data
    model.train()
    parts.likelihood.train()
    with record.on(model, optimizer=optimizer):
        for _ in range(80):
            optimizer.zero_grad()
            loss = parts.loss(model(x), y)
            loss.backward()
            optimizer.step()
            record.step(loss)
    return error(parts)
