"""botorch: a surrogate with two outputs is fitted by a torch optimizer, in double precision.

After the tutorial "Fitting models in BoTorch with a torch.optim.Optimizer": a `SingleTaskGP`, which scales its data,
with a noise prior; the library's loop keeps parameters in bounds. Error: the exponential of the loss,
which can be negative."""
import torch
from botorch.models import SingleTaskGP
from botorch.optim.fit import fit_gpytorch_mll_torch
from gpytorch.mlls import ExactMarginalLogLikelihood

from tests.bench.programs import Parts

SOURCE = "botorch: Fitting models with a torch.optim.Optimizer"
PACKAGES = ("botorch", "gpytorch")


def build() -> Parts:
    x = torch.rand(40, 2, dtype=torch.double)
    y = torch.stack([torch.sin(6*x[:, 0]) + x[:, 1], torch.cos(9*x[:, 1])*x[:, 0]], 1)
    model = SingleTaskGP(x, y + .05*torch.randn(40, 2, dtype=torch.double))
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    optimizer = torch.optim.Adam([{"params": model.parameters()}], lr=.01)

    def call(model, batch):
        "In training the model is given its own points, and its targets are scaled."
        inputs, targets = batch
        return -mll(model(inputs), targets).sum()
    parts = Parts(model, optimizer, [(model.train_inputs[0], model.train_targets)], call=call)
    parts.mll = mll
    return parts


def error(parts: Parts) -> float:
    parts.model.train()
    with torch.no_grad(): return parts.call(parts.model, parts.data[0]).exp().item()


def train(parts: Parts, record) -> float:
    parts.model.train()

    def told(parameters, result): record.step(result.fval)
    with record.on(parts.model, optimizer=parts.optimizer):
        fit_gpytorch_mll_torch(parts.mll, optimizer=parts.optimizer, step_limit=300, callback=told,
                               stopping_criterion=None)
    return error(parts)
