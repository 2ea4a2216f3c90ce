"""botorch: a surrogate with two outputs is fitted by a torch optimizer, in double precision.

After the tutorial "Fitting models in BoTorch with a torch.optim.Optimizer": a `SingleTaskGP`, which scales its data,
with a noise prior; Adam on the marginal likelihood of all points. Error: the loss above that of a careful fit, plus one
tenth."""
import torch
from botorch.models import SingleTaskGP
from gpytorch.mlls import ExactMarginalLogLikelihood

from tests.bench.programs import Parts

SOURCE = "botorch: Fitting models with a torch.optim.Optimizer"
PACKAGES = ("botorch", "gpytorch")


def build() -> Parts:
    x = torch.rand(40, 2, dtype=torch.double)
    y = torch.stack([torch.sin(6*x[:, 0]) + x[:, 1], torch.cos(9*x[:, 1])*x[:, 0]], 1)
    model = SingleTaskGP(x, y + .05*torch.randn(40, 2, dtype=torch.double))
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    optimizer = torch.optim.Adam([{"params": model.parameters()}], lr=.05)

    def call(model, batch):
        "In training the model is given its own points, and its targets are scaled."
        inputs, targets = batch
        return -mll(model(inputs), targets).sum()
    return Parts(model, optimizer, [(model.train_inputs[0], model.train_targets)], call=call)


def error(parts: Parts) -> float:
    parts.model.train()
    with torch.no_grad(): return parts.call(parts.model, parts.data[0]).exp().item()


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
