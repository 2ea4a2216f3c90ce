"""The batch norm of a frozen encoder is put into eval mode once, and the next `train()` puts it back.

The report: a graph transformer is tuned with a frozen encoder. Its norms were set to eval mode when it was frozen; each
epoch calls `train()`, after which they use the small batches and overwrite their statistics, and the answer for a
molecule depends on its batch. The author, who maintains the library, traced it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pgniewko/gt-pyg#112", 2026
AREA, CAUSE = "modes", "batch norm"
TRUE = {"samples leak"}
PLACE = ("encoder.norms.0", "encoder.norms.1")


class Encoder(nn.Module):
    "Messages between atoms that are bound, with batch norm, and the mean over the atoms."
    def __init__(self, size: int):
        super().__init__()
        self.first = nn.Linear(6, size)
        self.layers = nn.ModuleList(nn.Linear(2*size, size) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm1d(size) for _ in range(2))

    def forward(self, atoms, bonds):
        x = self.first(atoms)
        for layer, norm in zip(self.layers, self.norms):
            message = layer(torch.cat([x, bonds @ x], 2))
            x = x + norm(message.transpose(1, 2)).transpose(1, 2).relu()
        return x.mean(1)


class Property(nn.Module):
    "An encoder of molecules, and a head for one of their properties."
    def __init__(self, size: int):
        super().__init__()
        self.encoder = Encoder(size)
        self.head = nn.Sequential(nn.Dropout(.1), nn.Linear(size, size), nn.ReLU(), nn.Linear(size, 1))
        self.keep_frozen = False

    def train(self, mode: bool = True):
        super().train(mode)
        if self.keep_frozen: self.encoder.eval()
        return self

    def forward(self, atoms, bonds): return self.head(self.encoder(atoms, bonds))[:, 0]


def molecules(n: int):
    "Molecules of one kind of atom mostly, and how they are bound; two properties."
    kind = torch.randint(0, 6, (n, 1))
    atom = torch.where(torch.rand(n, 8) < .85, kind, torch.randint(0, 6, (n, 8)))
    bonds = (torch.rand(n, 8, 8) < .3).float().triu(1)
    atoms, bonds = F.one_hot(atom, 6).float(), bonds + bonds.transpose(1, 2)
    pull = torch.tensor([-2., -1, -.5, .5, 1, 2])
    one = (atoms @ pull).mean(1)
    touch = (bonds @ atoms[..., :3].sum(2, keepdim=True)).mean((1, 2))
    return atoms, bonds/2, one + touch, one - .5*touch


def build(repaired: bool) -> Parts:
    model = Property(24)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    atoms, bonds, one, _ = molecules(1024)
    for _ in range(150):  # the pretraining, on the first property
        some = torch.randint(0, 1024, (128,))
        optimizer.zero_grad()
        F.mse_loss(model(atoms[some], bonds[some]), one[some]).backward()
        optimizer.step()
    for layer in (model.head[1], model.head[3]): layer.reset_parameters()
    model.encoder.requires_grad_(False).eval()
    model.keep_frozen = repaired
    atoms, bonds, _, other = molecules(256)
    data = list(zip(atoms.split(2), bonds.split(2), other.split(2)))

    def call(model, batch): return F.mse_loss(model(*batch[:2]), batch[2])

    atoms, bonds, _, other = molecules(512)
    return Parts(model, torch.optim.AdamW(model.head.parameters(), lr=2e-3), data, call=call,
                 valid=[(atoms, bonds, other)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            parts.model.train()
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    with torch.no_grad(): return (parts.call(parts.model, parts.valid[0])/parts.valid[0][2].var()).item()
