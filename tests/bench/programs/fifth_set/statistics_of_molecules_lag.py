"""Few steps, and running statistics of a batch norm that begin at 0 and 1: in evaluation they are still near to these.

The report: with the second version of a library for molecules, the loss of training is far below those of validation
and test. A maintainer found that the running mean and variance are drawn to their first values, and that the difference
is gone when evaluation takes the statistics of the batch too."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "chemprop/chemprop#607", 2024
AREA, CAUSE = "modes", "batch norm"
TRUE = set()
PLACE = ("norm",)

kinds, atoms, size = 5, 12, 200


class Molecules(nn.Module):
    "Messages along the bonds, a mean over the atoms, a batch norm, and a net for the property."
    def __init__(self, repaired: bool):
        super().__init__()
        self.first, self.hidden = nn.Linear(kinds, size, bias=False), nn.Linear(size, size, bias=False)
        self.out = nn.Linear(kinds + size, size)
        self.norm = nn.BatchNorm1d(size, track_running_stats=not repaired)
        self.head = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, 1))

    def forward(self, kind, bond):
        atom = F.one_hot(kind, kinds).float()
        begin = self.first(atom)
        x = begin.relu()
        for _ in range(2): x = (begin + self.hidden(bond @ x)).relu()
        x = self.out(torch.cat([atom, bond @ x], 2)).relu()
        return self.head(self.norm(x.mean(1)))


def molecules(n: int, worth):
    "Trees of atoms; the property depends on pairs of bonded kinds, and is brought to a deviation of one."
    kind, bond = torch.randint(0, kinds, (n, atoms)), torch.zeros(n, atoms, atoms)
    for new in range(1, atoms):
        old = (torch.rand(n)*new).long()
        bond[torch.arange(n), new, old] = bond[torch.arange(n), old, new] = 1
    value = (worth[kind[:, :, None], kind[:, None]]*bond).sum((1, 2))
    return kind, bond, ((value - value.mean())/value.std())[:, None]


def batches(parts, n: int): return list(zip(*(part.split(n) for part in parts)))


def property_loss(model, batch):
    kind, bond, value = batch
    return F.mse_loss(model(kind, bond), value)


def build(repaired: bool) -> Parts:
    worth = torch.randn(kinds, kinds)
    model = Molecules(repaired)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    return Parts(model, optimizer, batches(molecules(256, worth + worth.T), 64), call=property_loss,
                 valid=batches(molecules(256, worth + worth.T), 64))


def train(parts: Parts, record) -> float:
    model, epochs = parts.model, 5
    schedule = torch.optim.lr_scheduler.OneCycleLR(parts.optimizer, 1e-3, total_steps=epochs*len(parts.data))
    with record.on(model, parts.optimizer):
        for _ in range(epochs):
            model.train()
            for batch in parts.data:
                loss = parts.call(model, batch)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                schedule.step()
                record.step(loss)
    model.eval()
    with torch.no_grad(): errors = [parts.call(model, batch) for batch in parts.valid]
    return torch.stack(errors).mean().item()
