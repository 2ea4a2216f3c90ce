"""torchcde: a neural controlled differential equation tells which way spirals turn.

After the example "irregular_data / time_series_classification" of torchcde: coefficients of splines as the data, a
linear map from the first value, a vector field that ends in tanh, Adam, one logit. Error: wrong answers on paths held
back."""
import math

import torch
import torchcde
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE = "torchcde: example/time_series_classification"
PACKAGES = ("torchcde",)


class CDEFunc(nn.Module):
    def __init__(self, channels, hidden):
        super().__init__()
        self.channels, self.hidden = channels, hidden
        self.linear1, self.linear2 = nn.Linear(hidden, 32), nn.Linear(32, channels*hidden)

    def forward(self, t, z): return self.linear2(self.linear1(z).relu()).tanh().view(-1, self.hidden, self.channels)


class NeuralCDE(nn.Module):
    def __init__(self, channels, hidden, out):
        super().__init__()
        self.func = CDEFunc(channels, hidden)
        self.initial, self.readout = nn.Linear(channels, hidden), nn.Linear(hidden, out)

    def forward(self, coeffs):
        path = torchcde.CubicSpline(coeffs)
        z0 = self.initial(path.evaluate(path.interval[0]))
        z = torchcde.cdeint(X=path, func=self.func, z0=z0, t=path.interval, method="rk4", options={"step_size": 2.},
                            adjoint=False)
        return self.readout(z[:, 1]).squeeze(-1)


def spirals(n: int):
    t, start = torch.linspace(0, 4*math.pi, 25), 2*math.pi*torch.rand(n, 1)
    turn = (torch.rand(n) < .5).float()
    angle = start + t*(2*turn - 1)[:, None]
    x = torch.stack([t.expand(n, -1), angle.cos()/(1 + .5*t), angle.sin()/(1 + .5*t)], -1)
    x[..., 1:] += .02*torch.randn(n, 25, 2)
    return torchcde.hermite_cubic_coefficients_with_backward_differences(x), turn


def call(model, batch):
    coeffs, y = batch
    return F.binary_cross_entropy_with_logits(model(coeffs), y)


def build() -> Parts:
    model = NeuralCDE(3, 8, 1)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-2),
                 DataLoader(TensorDataset(*spirals(256)), 32, shuffle=True), F.binary_cross_entropy_with_logits,
                 valid=DataLoader(TensorDataset(*spirals(128)), 128))


@torch.no_grad()
def error(parts: Parts) -> float:
    coeffs, y = parts.valid.dataset.tensors
    return ((parts.model(coeffs) > 0) != (y > .5)).float().mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer=optimizer):
        for _ in range(10):
            for batch in parts.data:
                loss = call(model, batch)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                record.step(loss)
    return error(parts)
