"""gpytorch: regression with a stochastic variational Gaussian process in small batches.

After the tutorial "Stochastic variational GP regression": inducing points from the data, a likelihood whose parameters
are in the same optimizer, the negative variational ELBO. Error: mean squared error held back, over the variance."""
import gpytorch
import torch
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE = "gpytorch: Stochastic Variational GP Regression"
PACKAGES = ("gpytorch",)


class GPModel(gpytorch.models.ApproximateGP):
    def __init__(self, inducing_points):
        distribution = CholeskyVariationalDistribution(inducing_points.size(0))
        super().__init__(VariationalStrategy(self, inducing_points, distribution, learn_inducing_locations=True))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x): return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def points(n: int):
    x = torch.rand(n, 4)*2 - 1
    return x, torch.sin(3*x[:, 0]) + x[:, 1]*x[:, 2] + .1*torch.randn(n)


def build() -> Parts:
    (x, y), valid = points(800), points(200)
    model, likelihood = GPModel(x[:40]), gpytorch.likelihoods.GaussianLikelihood()
    mll = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    optimizer = torch.optim.Adam([{"params": model.parameters()}, {"params": likelihood.parameters()}], lr=.02)
    parts = Parts(model, optimizer, DataLoader(TensorDataset(x, y), 100, shuffle=True),
                  lambda output, y: -mll(output, y), valid=DataLoader(TensorDataset(*valid), 200))
    parts.likelihood = likelihood
    return parts


def error(parts: Parts) -> float:
    parts.model.eval()
    parts.likelihood.eval()
    x, y = parts.valid.dataset.tensors
    with torch.no_grad(): return ((parts.model(x).mean - y)**2).mean().item()/y.var().item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    model.train()
    parts.likelihood.train()
    with record.on(model, optimizer=optimizer):
        for _ in range(30):
            for x, y in parts.data:
                optimizer.zero_grad()
                loss = parts.loss(model(x), y)
                loss.backward()
                optimizer.step()
                record.step(loss)
    return error(parts)
