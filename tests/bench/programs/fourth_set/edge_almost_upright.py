"""A guard catches edges that point exactly upwards, and those that almost do give infinite second derivatives.

The report is the merged change: fine-tuning a potential for molecules gets NaN or infinite gradients from edges that
are nearly in line with the y-axis, while it works with those that are exactly so. The author clamps the squares in the
backward of the angle, and a reviewer agreed."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "facebookresearch/fairchem#1574", 2025
AREA, CAUSE = "precision", "NaN or Inf"
TRUE = {"gradients explode", "outputs blow up", "spike", "not trained"}
PLACE = ()
START, END = (torch.arange(4)[:, None] != torch.arange(4)).nonzero().unbind(1)


def edges(places):
    edge = places[:, END] - places[:, START]
    return edge, edge.norm(dim=2, keepdim=True)


class Around(torch.autograd.Function):
    "The angle around the y-axis; its gradient is guarded where an edge points along that axis."
    @staticmethod
    def forward(context, x, z, clamped):
        context.save_for_backward(x, z)
        context.clamped = clamped
        return torch.atan2(x, z)

    @staticmethod
    def backward(context, gradient):
        x, z = context.saved_tensors
        squares = x**2 + z**2
        squares = squares.clamp(min=1e-7) if context.clamped else torch.where(squares == 0, 1., squares)
        return z/squares*gradient, -x/squares*gradient, None


class Potential(nn.Module):
    "The energy of four atoms; edges are turned by their angles before they are gathered."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.radial = nn.Sequential(nn.Linear(8, size), nn.SiLU(), nn.Linear(size, size))
        self.atom = nn.Sequential(nn.Linear(2*size, size), nn.SiLU(), nn.Linear(size, 1))
        self.register_buffer("steps", torch.linspace(.5, 3, 8))

    def forward(self, places):
        edge, length = edges(places)
        x, y, z = (edge/length).clamp(-1, 1).unbind(2)
        around, aside = Around.apply(x, z, self.repaired), (1 - y**2).clamp(min=1e-7).sqrt()
        turned = torch.stack([aside*around.sin(), y, aside*around.cos()], 2)
        weight = self.radial((-4*(length - self.steps)**2).exp())
        message = torch.cat([torch.ones_like(length), turned], 2)[..., None]*weight[:, :, None]
        gathered = torch.zeros(len(places), 4, *message.shape[2:]).index_add(1, START, message)
        return self.atom(torch.cat([gathered[:, :, 0], gathered[:, :, 1:].square().sum(2)], 2)).sum((1, 2))


def true_energy(places): return ((1 - (1.2 - edges(places)[1]).exp())**2).sum((1, 2))/4


def with_forces(energy_of, places, create_graph: bool = False):
    places = places.detach().requires_grad_()
    energy = energy_of(places)
    return energy, -torch.autograd.grad(energy.sum(), places, create_graph=create_graph)[0]


def molecules(n: int):
    "Near a tetrahedron. Some were relaxed, and their second atom is above the first but for a rounding error."
    corners = torch.tensor([[0., 0, 0], [0, 1.2, 0], [1.1, .4, 0], [-.5, .4, 1]])
    places = corners + .15*torch.randn(n, 4, 3)
    relaxed = torch.rand(n) < .01
    places[relaxed, 0, ::2], places[relaxed, 1, ::2] = 0., 1e-21
    return places, *(part.detach() for part in with_forces(true_energy, places))


def build(repaired: bool) -> Parts:
    def call(model, batch):
        places, energy, forces = batch
        found, pulls = with_forces(model, places, create_graph=True)
        return F.mse_loss(found, energy) + F.mse_loss(pulls, forces)

    model = Potential(24, repaired)
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3), [molecules(32) for _ in range(200)], call=call)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for batch in parts.data:
            parts.optimizer.zero_grad()
            loss = parts.call(parts.model, batch)
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    places, _, forces = molecules(256)
    return (F.mse_loss(with_forces(parts.model, places)[1], forces)/forces.var()).item()
