"""The density of a scene goes through a ReLU and begins below zero everywhere: nothing is seen, and nothing is learned.

The report: radiance fields are trained as a start for new scenes, and now and then the score stays at one number. The
author names the ReLU of the density, which with bad luck is zero at the beginning, and merged a softplus. Here the
weights are drawn with such luck."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "munshisanowarraihan/nerf-meta#1", 2021
AREA, CAUSE = "initialisation", "dead units"
TRUE = {"constant output", "gradients vanish", "not trained", "loss does not fall", "input unused", "samples alike",
        "cannot learn by heart"}
PLACE = ("field.density", "field.density.weight", "field.density.bias")
UNLUCKY, DEPTHS = 0, torch.linspace(.5, 3.5, 24)


class Field(nn.Module):
    "Colour and density at points of a plane."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(14, size), nn.ReLU(), nn.Linear(size, size), nn.ReLU(),
                                   nn.Linear(size, size), nn.ReLU())
        self.density, self.colour = nn.Linear(size, 1), nn.Linear(size, 3)
        self.positive = F.softplus if repaired else F.relu

    def forward(self, points):
        angle = torch.cat([points*2.**k for k in range(3)], -1)
        x = self.trunk(torch.cat([points, angle.sin(), angle.cos()], -1))
        return self.positive(self.density(x))[..., 0], self.colour(x).sigmoid()


def render(density, colour):
    "What is seen along rays in front of a white wall."
    hidden = 1 - (-density*(DEPTHS[1] - DEPTHS[0])).exp()
    through = torch.cat([torch.ones_like(hidden[:, :1]), (1 - hidden + 1e-10).cumprod(1)], 1)
    weight = hidden*through[:, :-1]
    return (weight[..., None]*colour).sum(1) + 1 - weight.sum(1, keepdim=True)


def scene(points):
    "A red, a green and a blue disk."
    middle = torch.tensor([[.6, .2], [-.5, .5], [-.1, -.7]])
    inside = ((points[..., None, :] - middle).norm(dim=-1) < torch.tensor([.4, .35, .3])).float()
    return 8*inside.amax(-1), inside


def rays(n: int):
    "From cameras on a circle around the scene, in all directions that meet it."
    around, aside = 2*torch.pi*torch.rand(n), .9*torch.rand(n) - .45
    start, turned = 2*torch.stack([around.cos(), around.sin()], 1), around + torch.pi + aside
    return start[:, None] + DEPTHS[:, None]*torch.stack([turned.cos(), turned.sin()], 1)[:, None]


class View(nn.Module):
    def __init__(self, field):
        super().__init__()
        self.field = field

    def forward(self, points): return render(*self.field(points))


def seen(n: int):
    points = rays(n)
    return points, render(*scene(points))


def build(repaired: bool) -> Parts:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(UNLUCKY)
        field = Field(48, repaired)
    model = View(field)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), [seen(64) for _ in range(250)], F.mse_loss,
                 valid=[seen(512)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for points, colour in parts.data:
            loss = parts.loss(parts.model(points), colour)
            parts.optimizer.zero_grad()
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    points, colour = parts.valid[0]
    with torch.no_grad(): return (parts.loss(parts.model(points), colour)/colour.var()).item()
