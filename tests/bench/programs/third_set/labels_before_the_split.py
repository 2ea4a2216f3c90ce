"""With a validation set, molecules are taken in the order of a random split, and their labels in that of the table.

The report is the merged change of a library for molecules: labels of the training set were misaligned as soon as a
validation set was used. The maintainers confirmed the repair."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "JacksonBurns/chemeleon#34", 2026
AREA, CAUSE = "data and labels", "labels do not belong to inputs"
TRUE = set()
PLACE = ()


class Fingerprints(nn.Module):
    "A graph of atoms and bonds as one vector, and a small network on top of it."
    def __init__(self, size: int):
        super().__init__()
        self.atoms = nn.Embedding(6, size)
        self.messages = nn.ModuleList([nn.Linear(2*size, size) for _ in range(2)])
        self.head = nn.Sequential(nn.Linear(size, 48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, atoms, bonds):
        x = self.atoms(atoms)
        for layer in self.messages: x = layer(torch.cat([x, bonds @ x], 2)).relu()
        return self.head(x.mean(1)).squeeze(1)


def molecules(n: int):
    "Chains of ten atoms with a few rings; what is measured counts neighbours of two kinds."
    atoms = torch.randint(6, (n, 10))
    bonds = torch.diag(torch.ones(9), 1) + (torch.rand(n, 10, 10) < .04).float().triu(1)
    bonds = (bonds + bonds.transpose(1, 2)).clamp(max=1.)
    weight = torch.tensor([1., -.5, 2., 0., -1., .3])[atoms]
    measured = (weight*(bonds @ (atoms < 2).float().unsqueeze(2)).squeeze(2)).sum(1)
    return atoms, bonds, measured + .1*torch.randn(n)


def build(repaired: bool) -> Parts:
    model = Fingerprints(32)
    atoms, bonds, measured = molecules(1200)
    order = torch.randperm(1200)
    rows, held = order[:1000], order[1000:]
    labels = measured[rows] if repaired else measured[:1000]
    mean, std = labels.mean(), labels.std()
    data = [(atoms[rows[i:i + 50]], bonds[rows[i:i + 50]], (labels[i:i + 50] - mean)/std) for i in range(0, 1000, 50)]
    valid = [(atoms[held], bonds[held], (measured[held] - mean)/std)]

    def call(model, batch): return nn.functional.mse_loss(model(*batch[:2]), batch[2])

    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, call=call, valid=valid)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(15):
            parts.model.train()
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad(): return parts.call(parts.model.eval(), parts.valid[0]).item()
