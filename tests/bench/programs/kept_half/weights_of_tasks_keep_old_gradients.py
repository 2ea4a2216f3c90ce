"""Only the network's gradients are cleared, and those of the learnt weights of its two tasks pile up.

The report, merged as a change: the logarithms that weigh the losses of several tasks are outside the network that is
cleared for each batch, so their gradients add up over all batches and spoil the weights. It was seen in the gradient,
which grew with each step and stayed the same after the change."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "NVIDIA-BioNeMo/KERMT#19", 2026
AREA, CAUSE = "loop", "gradients not cleared"
TRUE = {"loss rises"}
PLACE = ("weighing", "weighing.log_sigma")


class Molecules(nn.Module):
    "Atoms hear from their neighbours twice; their sum gives two properties."
    def __init__(self):
        super().__init__()
        self.atoms, self.first, self.second = nn.Linear(5, 32), nn.Linear(64, 32), nn.Linear(64, 32)
        self.last = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, atoms, bonds):
        x = self.atoms(atoms).relu()
        for layer in (self.first, self.second): x = layer(torch.cat([x, bonds@x], 2)).relu()
        return self.last(x.mean(1))


class Weighing(nn.Module):
    "Weighs the losses of two tasks, each by how sure it is."
    def __init__(self):
        super().__init__()
        self.log_sigma = nn.Parameter(torch.zeros(2))

    def forward(self, losses): return (losses*(-2*self.log_sigma).exp()/2 + self.log_sigma).sum()


def molecules(n: int):
    "Eight atoms of five kinds with some bonds; one property is of the atoms, the other of the bonds, and much larger."
    atoms, bonds = F.one_hot(torch.randint(0, 5, (n, 8)), 5).float(), (torch.rand(n, 8, 8) < .2).float().triu(1)
    bonds = bonds + bonds.transpose(1, 2)
    worth = atoms[:, :, 0] - atoms[:, :, 1]
    pairs = (atoms[:, :, 2:3]*bonds*atoms[:, :, 3:4].transpose(1, 2)).sum((1, 2))
    y = torch.stack([worth.sum(1)/2, 6*(pairs + .5*bonds.sum((1, 2)) - 6)], 1)
    return (atoms, bonds), y + .1*torch.randn(n, 2)


def weighed(model, batch):
    (atoms, bonds), y = batch
    return model["weighing"](((model["network"](atoms, bonds) - y)**2).mean(0))


def build(repaired: bool) -> Parts:
    model = nn.ModuleDict({"network": Molecules(), "weighing": Weighing()})
    groups = [{"params": model["network"].parameters()}, {"params": model["weighing"].parameters(), "lr": 2e-2}]
    optimizer = torch.optim.Adam(groups, lr=3e-3)
    return Parts(model, optimizer, [molecules(64) for _ in range(16)], call=weighed, valid=[molecules(1024)],
                 repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(30):
            for batch in parts.data:
                model["network"].zero_grad()
                if parts.repaired: model["weighing"].zero_grad()
                loss = parts.call(model, batch)
                loss.backward()
                optimizer.step()
                record.step(loss)
    (atoms, bonds), y = parts.valid[0]
    with torch.no_grad(): error = ((model["network"](atoms, bonds) - y)**2).mean(0)
    return (error/y.var(0)).mean().item()
