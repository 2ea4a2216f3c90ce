"""A net with continuous filters learns energies of small clusters of atoms and, by a second derivative, their forces.

Habits of the source: forces are minus the gradient of the predicted energy with respect to the positions, with a graph
that the loss goes through; weights 0.01 for the energy and 0.99 for the forces; the mean energy of the training data is
taken away; shifted softplus; distances in Gaussians, with a smooth end; energies are sums over atoms; AdamW; the rate
falls when the validation loss stops falling; validation too needs gradients, so only the mode changes there.
Error: squared error of forces on clusters held back over their mean square: 0.002 to 0.006; untrained 1."""
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "atomistic-machine-learning/schnetpack src/schnetpack/task.py", 2022
ATOMS, CUTOFF = 4, 4.


class Softplus(nn.Module):
    def forward(self, x): return F.softplus(x) - math.log(2)


class Interaction(nn.Module):
    def __init__(self, size, gaussians):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(gaussians, size), Softplus(), nn.Linear(size, size))
        self.enter = nn.Linear(size, size, bias=False)
        self.leave = nn.Sequential(nn.Linear(size, size), Softplus(), nn.Linear(size, size))

    def forward(self, x, spread, end):
        weights = self.filter(spread)*end[..., None]
        return self.leave((weights*self.enter(x)[:, None]).sum(2))


class SchNet(nn.Module):
    def __init__(self, size=24, gaussians=16, layers=2, mean=0.):
        super().__init__()
        self.embedding = nn.Embedding(3, size, padding_idx=0)
        self.layers = nn.ModuleList(Interaction(size, gaussians) for _ in range(layers))
        self.out = nn.Sequential(nn.Linear(size, size//2), Softplus(), nn.Linear(size//2, 1))
        self.register_buffer("centres", torch.linspace(0, CUTOFF, gaussians))
        self.register_buffer("mean", torch.as_tensor(mean))

    def forward(self, kind, place):
        place.requires_grad_()
        apart = place[:, :, None] - place[:, None]
        far = (apart.pow(2).sum(-1) + torch.eye(ATOMS)).sqrt()
        end = .5*((far*math.pi/CUTOFF).cos() + 1)*(far < CUTOFF)*(1 - torch.eye(ATOMS))
        spread = (-.5*((far[..., None] - self.centres)/(CUTOFF/len(self.centres)))**2).exp()
        x = self.embedding(kind)
        for layer in self.layers: x = x + layer(x, spread, end)
        energy = self.out(x).sum((1, 2))
        force = -torch.autograd.grad(energy.sum(), place, create_graph=self.training)[0]
        return energy + self.mean, force


def clusters(n):
    "Two kinds of atoms near the corners of a tetrahedron, with Morse energies in electronvolts."
    corners = torch.tensor([[1., 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])*.55
    kind, place = torch.randint(1, 3, (n, ATOMS)), (corners + .15*torch.randn(n, ATOMS, 3)).requires_grad_()
    far = ((place[:, :, None] - place[:, None]).pow(2).sum(-1) + torch.eye(ATOMS)).sqrt()
    depth = .5*(kind[:, :, None]*kind[:, None]).float().sqrt()
    pair = depth*((1 - (-1.2*(far - 1.5)).exp())**2 - 1)*(1 - torch.eye(ATOMS))
    energy = pair.sum((1, 2))/2 - 4.
    force = -torch.autograd.grad(energy.sum(), place)[0]
    return kind, place.detach(), energy.detach(), force


def call(model, batch):
    kind, place, energy, force = batch
    found, pull = model(kind, place)
    return .01*F.mse_loss(found, energy) + .99*F.mse_loss(pull, force)


def build(repaired: bool) -> Parts:
    train, valid = TensorDataset(*clusters(800)), TensorDataset(*clusters(200))
    model = SchNet(mean=train.tensors[2].mean())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    return Parts(model, optimizer, DataLoader(train, batch_size=32, shuffle=True), call=call,
                 valid=DataLoader(valid, batch_size=100))


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=.5, patience=2)
    with record.on(model, optimizer):
        for _ in range(10):
            model.train()
            for batch in parts.data:
                optimizer.zero_grad()
                loss = call(model, batch)
                loss.backward()
                optimizer.step()
                record.step(loss)
            model.eval()
            schedule.step(sum(call(model, batch).item() for batch in parts.valid))
    kind, place, _, force = clusters(300)
    return (F.mse_loss(model(kind, place)[1], force)/force.pow(2).mean()).item()
