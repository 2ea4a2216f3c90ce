"""The Laplacian is the derivative of the sum of both slopes, so it contains the mixed derivative twice.

The report: a network for the Helmholtz equation learns the right solution with one library and a wrong one with
PyTorch, whatever its size. Two readers found the cause, and one showed the repair: to take the slopes apart before they
are derived again."""
import torch
from torch import nn
from torch.autograd import grad
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "prateekbhustali/Physics-Informed-Neural-Networks#4", 2023
AREA, CAUSE = "loss and task", "wrong axis"
TRUE = {"losses fight"}
PLACE = ()
PI = torch.pi


def exact(points): return (PI*points[:, :1]).sin()*(PI*points[:, 1:]).sin()


def source(points): return (1 - 2*PI**2)*exact(points)


class Waves(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, size), nn.Tanh(), nn.Linear(size, size), nn.Tanh(), nn.Linear(size, 1))

    def forward(self, points): return self.net(points)


def equation(model, points, repaired: bool):
    "The residual of Helmholtz' equation with the wave number one."
    points = points.clone().requires_grad_()
    u = model(points)
    slope = grad(u, points, torch.ones_like(u), create_graph=True)[0]
    if repaired:
        curves = [grad(slope[:, i].sum(), points, create_graph=True)[0][:, i] for i in range(2)]
    else:
        curves = grad(slope, points, torch.ones_like(slope), create_graph=True)[0].unbind(1)
    return F.mse_loss((sum(curves))[:, None] + u, source(points))


def build(repaired: bool) -> Parts:
    model = Waves(24)
    inside = 2*torch.rand(512, 2) - 1
    along, ends = 2*torch.rand(128, 1) - 1, torch.tensor([-1., 1])[torch.randint(0, 2, (128, 1))]
    sides = torch.cat([torch.cat([along, ends], 1), torch.cat([ends, along], 1)])
    data = [(inside, sides)]

    def call(model, batch):
        inside, sides = batch
        return equation(model, inside, repaired) + 100*F.mse_loss(model(sides), exact(sides))

    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3), data, call=call)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(500):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    points = 2*torch.rand(1024, 2) - 1
    with torch.no_grad(): return (F.mse_loss(parts.model(points), exact(points))/exact(points).var()).item()
