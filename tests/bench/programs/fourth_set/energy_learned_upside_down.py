"""The slope of an energy is matched with the score of the data, which is minus that slope: the data become hills.

The report: a loss of denoising score matching for energy-based models compares the gradient of the energy with that of
the logarithm of the density, so the energy of a normal cloud is highest in its middle, and samplers run away from the
data. The maintainer, who reported it, had it right again with the other sign, and merged that."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "soran-ghaderi/torchebm#318", 2026
AREA, CAUSE = "loss and task", "wrong sign"
TRUE = set()
PLACE = ()
NOISE = .2


class Energy(nn.Module):
    "Low where data are likely."
    def __init__(self, size: int):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, size), nn.SiLU(), nn.Linear(size, size), nn.SiLU(), nn.Linear(size, 1))

    def forward(self, points): return self.net(points)[:, 0]


def slope(model, points, create_graph: bool = False):
    points = points.detach().requires_grad_()
    with torch.enable_grad():
        return torch.autograd.grad(model(points).sum(), points, create_graph=create_graph)[0]


class DenoisingScore(nn.Module):
    def __init__(self, repaired: bool):
        super().__init__()
        self.sign = -1 if repaired else 1

    def forward(self, model, points):
        noise = NOISE*torch.randn_like(points)
        score = self.sign*slope(model, points + noise, create_graph=True)
        return (score + noise/NOISE**2).square().sum(1).mean()*NOISE**2/2


def rings(n: int):
    "A small cloud within a ring."
    angle, inside = 2*torch.pi*torch.rand(n), torch.rand(n) < .3
    radius = torch.where(inside, .2*torch.rand(n), 1.5)
    return torch.stack([angle.cos(), angle.sin()], 1)*radius[:, None] + .05*torch.randn(n, 2)


@torch.no_grad()
def sample(model, n: int):
    "Langevin dynamics downhill."
    points, step = 2*torch.randn(n, 2), .005
    for _ in range(200): points = points - step*slope(model, points) + (2*step)**.5*torch.randn_like(points)
    return points.clamp(-4, 4)


def build(repaired: bool) -> Parts:
    model, loss = Energy(64), DenoisingScore(repaired)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), [rings(128) for _ in range(400)], call=loss,
                 valid=[rings(512)])


def train(parts: Parts, record) -> float:
    parts.model.train()
    with record.on(parts.model, parts.optimizer):
        for points in parts.data:
            parts.optimizer.zero_grad()
            loss = parts.call(parts.model, points)
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    made, real, other = sample(parts.model, 512), parts.valid[0], rings(512)

    def far(a, b): return torch.cdist(a, b).mean()
    return ((2*far(made, real) - far(made, made) - far(real, other))/far(real, other)).item()
