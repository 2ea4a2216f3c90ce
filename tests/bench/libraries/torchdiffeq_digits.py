"""torchdiffeq: a block whose output is the state of a learned differential equation at time 1, trained by the adjoint.

After the example "odenet_mnist" of torchdiffeq: layers that see the time, group norm, momentum, a rate that falls by
steps, `odeint_adjoint`. Error: wrong answers on digits held back."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchdiffeq import odeint_adjoint

from tests.bench.libraries._data import digits, split, wrong
from tests.bench.programs import Parts

SOURCE = "torchdiffeq: examples/odenet_mnist"
PACKAGES = ("torchdiffeq", "scikit-learn")
WIDTH = 24


class ConcatConv2d(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.layer = nn.Conv2d(before + 1, after, 3, padding=1)

    def forward(self, t, x): return self.layer(torch.cat([torch.ones_like(x[:, :1])*t, x], 1))


class ODEfunc(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.GroupNorm(8, dim) for _ in range(3))
        self.relu, self.conv1, self.conv2 = nn.ReLU(), ConcatConv2d(dim, dim), ConcatConv2d(dim, dim)

    def forward(self, t, x):
        out = self.conv1(t, self.relu(self.norm1(x)))
        return self.norm3(self.conv2(t, self.relu(self.norm2(out))))


class ODEBlock(nn.Module):
    def __init__(self, odefunc):
        super().__init__()
        self.odefunc = odefunc
        self.register_buffer("times", torch.tensor([0., 1.]))

    def forward(self, x):
        return odeint_adjoint(self.odefunc, x, self.times, rtol=1e-2, atol=1e-2, method="rk4",
                              options={"step_size": .5})[1]


def build() -> Parts:
    known, held = split(*digits(), n=1000)
    model = nn.Sequential(nn.Conv2d(1, WIDTH, 3, 1), nn.GroupNorm(8, WIDTH), nn.ReLU(), ODEBlock(ODEfunc(WIDTH)),
                          nn.GroupNorm(8, WIDTH), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(WIDTH, 10))
    return Parts(model, torch.optim.SGD(model.parameters(), lr=.1, momentum=.9),
                 DataLoader(TensorDataset(*known), 64, shuffle=True, drop_last=True), nn.CrossEntropyLoss(),
                 valid=DataLoader(TensorDataset(*held), 256))


def error(parts: Parts) -> float: return wrong(parts.model, parts.valid)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [5], .1)
    with record.on(model, optimizer=optimizer):
        for _ in range(6):
            model.train()
            for x, y in parts.data:
                optimizer.zero_grad()
                loss = parts.loss(model(x), y)
                loss.backward()
                optimizer.step()
                record.step(loss)
            schedule.step()
            error(parts)
    return error(parts)
