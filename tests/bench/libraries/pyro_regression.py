"""pyro: Bayesian regression with a `PyroModule` and an automatic guide.

After the tutorial "Bayesian regression: introduction" of Pyro: all data in one batch, `AutoDiagonalNormal`, `SVI` with
an optimizer of Pyro, whose parameters live in the guide. Error: distance of the guide's median from the true
weights."""
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoDiagonalNormal
from pyro.nn import PyroModule, PyroSample
from torch import nn

from tests.bench.programs import Parts

SOURCE = "pyro-ppl: Bayesian Regression, Introduction"
PACKAGES = ("pyro-ppl",)
WEIGHTS = torch.tensor([1.5, -2., .7])


class BayesianRegression(PyroModule):
    def __init__(self):
        super().__init__()
        self.linear = PyroModule[nn.Linear](3, 1)
        self.linear.weight = PyroSample(dist.Normal(0., 1.).expand([1, 3]).to_event(2))
        self.linear.bias = PyroSample(dist.Normal(0., 3.).expand([1]).to_event(1))

    def forward(self, x, y=None):
        sigma = pyro.sample("sigma", dist.Uniform(0., 10.))
        mean = self.linear(x).squeeze(-1)
        with pyro.plate("data", x.shape[0]): pyro.sample("obs", dist.Normal(mean, sigma), obs=y)
        return mean


def build() -> Parts:
    pyro.clear_param_store()
    x = torch.randn(170, 3)
    y = x @ WEIGHTS + .5 + .3*torch.randn(170)
    model = BayesianRegression()
    guide = AutoDiagonalNormal(model)
    guide(x, y)
    optimizer = pyro.optim.Adam({"lr": .03})
    elbo = Trace_ELBO()

    def call(guide, batch): return elbo.differentiable_loss(model, guide, *batch)
    parts = Parts(guide, optimizer, (x, y), call=call)
    parts.svi = SVI(model, guide, optimizer, loss=elbo)
    return parts


@torch.no_grad()
def error(parts: Parts) -> float: return (parts.model.median()["linear.weight"][0] - WEIGHTS).norm().item()


def train(parts: Parts, record) -> float:
    with record.on(parts.model, optimizer=parts.optimizer):
        for _ in range(600): record.step(parts.svi.step(*parts.data))
    return error(parts)
