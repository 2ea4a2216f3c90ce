"""The weight of the equation's residual is added to it and not multiplied with it, so the residual drowns the boundary.

The report is the merged change: the loss for Poisson's equation adds the weight of the interior to the loss of the
interior. A maintainer merged the repair, which multiplies them."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "neuraloperator/neuraloperator#619", 2025
AREA, CAUSE = "loss and task", "a term outweighs the others"
TRUE = {"loss outweighs", "losses fight"}
PLACE = ()
WEIGHT = .002
SIDE = torch.tensor([0., 1.])


class Solution(nn.Module):
    "The potential at a point of the unit square, for the strengths of three waves of the source."
    def __init__(self, size: int):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, size), nn.Tanh(), nn.Linear(size, size), nn.Tanh(), nn.Linear(size, size),
                                 nn.Tanh(), nn.Linear(size, 1))

    def forward(self, x, y, strength): return self.net(torch.cat([x, y, strength], 1))


def waves(x, y):
    pi = torch.pi
    return torch.cat([(pi*x).sin()*(pi*y).sin(), (2*pi*x).sin()*(pi*y).sin(), (pi*x).sin()*(2*pi*y).sin()], 1)


def exact(x, y, strength):
    "With its values on the sides: a slope in x."
    return (strength*waves(x, y)).sum(1, keepdim=True) + x


def source(x, y, strength): return -torch.pi**2*(strength*torch.tensor([2., 5, 5])*waves(x, y)).sum(1, keepdim=True)


def interior(model, x, y, strength):
    u = model(x, y, strength)
    u_x, u_y = torch.autograd.grad(u.sum(), (x, y), create_graph=True)
    u_xx = torch.autograd.grad(u_x.sum(), x, create_graph=True)[0]
    u_yy = torch.autograd.grad(u_y.sum(), y, create_graph=True)[0]
    return F.mse_loss(u_xx + u_yy, source(x, y, strength))


def on_the_sides(n: int):
    along, side, flip = torch.rand(n, 1), SIDE[torch.randint(0, 2, (n, 1))], torch.rand(n, 1) < .5
    return torch.where(flip, along, side), torch.where(flip, side, along)


def points(n: int):
    inside = torch.rand(n, 1, requires_grad=True), torch.rand(n, 1, requires_grad=True)
    return inside, on_the_sides(n), torch.rand(n, 3)


def build(repaired: bool) -> Parts:
    model = Solution(32)

    def call(model, batch):
        inside, sides, strength = batch
        boundary = F.mse_loss(model(*sides, strength), exact(*sides, strength))
        residual = interior(model, *inside, strength)
        return boundary + (WEIGHT*residual if repaired else WEIGHT + residual)

    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), [points(128) for _ in range(400)], call=call)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for batch in parts.data:
            parts.optimizer.zero_grad()
            loss = parts.call(parts.model, batch)
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    x, y, strength = torch.rand(512, 1), torch.rand(512, 1), torch.rand(512, 3)
    with torch.no_grad(): output, aim = parts.model(x, y, strength), exact(x, y, strength)
    return (F.mse_loss(output, aim)/aim.var()).item()
