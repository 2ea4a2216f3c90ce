"""botorch: a surrogate with two outputs is fitted by a torch optimizer, in double precision.

After the tutorial "Fitting models in BoTorch with a torch.optim.Optimizer": a `SingleTaskGP`, which scales its data,
with a noise prior; SGD on the marginal likelihood of all points. Error: the loss above that of a careful fit, plus one
tenth."""
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.mlls import ExactMarginalLogLikelihood

from tests.bench.programs import Parts

SOURCE = "botorch: Fitting models with a torch.optim.Optimizer"
PACKAGES = ("botorch", "gpytorch")


def model_of(x, y):
    model = SingleTaskGP(x, y)
    return model, ExactMarginalLogLikelihood(model.likelihood, model)


def build() -> Parts:
    x = torch.rand(40, 2, dtype=torch.double)
    y = torch.stack([torch.sin(6*x[:, 0]) + x[:, 1], torch.cos(9*x[:, 1])*x[:, 0]], 1)
    y = y + .05*torch.randn(40, 2, dtype=torch.double)
    model, mll = model_of(x, y)
    _, best = model_of(x, y)
    fit_gpytorch_mll(best)
    optimizer = torch.optim.Adam([{"params": model.parameters()}], lr=.05)
    # In training the model gives the distribution of its own, scaled targets.
    parts = Parts(model, optimizer, [(model.train_inputs[0], model.train_targets)],
                  call=lambda model, batch: -mll(model(*model.train_inputs), batch[1]).sum())
    best.train()
    with torch.no_grad():
        parts.best = -best(best.model(*best.model.train_inputs), best.model.train_targets).sum().item()
    return parts


def error(parts: Parts) -> float:
    parts.model.train()
    with torch.no_grad(): return parts.call(parts.model, parts.data[0]).item() - parts.best + .1


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    model.train()
    with record.on(model, optimizer=optimizer):
        for _ in range(100):
            optimizer.zero_grad()
            loss = parts.call(model, parts.data[0])
            loss.backward()
            optimizer.step()
            record.step(loss)
    return error(parts)
