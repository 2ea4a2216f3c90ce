"""A graph's energy is one number, its label is a list of one number, and the squared error compares each with each.

The report: labels come out of the pipeline with a dimension more than what is read out of the graphs, so the loss
broadcasts both to a square and its value is another one. The maintainer's change, which brings the output into the
shape of the labels, was merged."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "IntelLabs/matsciml#347", 2025
AREA, CAUSE = "loss and task", "labels broadcast"
TRUE = {"loss does not fall", "cannot learn by heart", "constant output", "input unused"}
PLACE = ()

kinds, atoms = 4, 9


class Crystal(nn.Module):
    "Atoms hear of their neighbours three times, and all of them together give an energy."
    def __init__(self, size: int):
        super().__init__()
        self.kinds = nn.Embedding(kinds, size)
        self.messages = nn.ModuleList(nn.Sequential(nn.Linear(2*size, size), nn.SiLU()) for _ in range(3))
        self.updates = nn.ModuleList(nn.Sequential(nn.Linear(2*size, size), nn.SiLU()) for _ in range(3))
        self.readout = nn.Sequential(nn.Linear(size, size), nn.SiLU(), nn.Linear(size, 1))

    def forward(self, kind, bond):
        x = self.kinds(kind)
        for message, update in zip(self.messages, self.updates):
            pairs = torch.cat([x.unsqueeze(2).expand(-1, -1, atoms, -1), x.unsqueeze(1).expand(-1, atoms, -1, -1)], 3)
            heard = (message(pairs)*bond.unsqueeze(3)).sum(2)
            x = x + update(torch.cat([x, heard], 2))
        return self.readout(x.mean(1)).squeeze(1)


def crystals(n: int, strength):
    "Energies are means over the bonds, each of which has the strength of its two kinds."
    kind, near = torch.randint(0, kinds, (n, atoms)), torch.rand(n, atoms, atoms) < .3
    bond = (near | near.transpose(1, 2)).float()*(1 - torch.eye(atoms))
    energy = (strength[kind[:, :, None], kind[:, None]]*bond).sum((1, 2))/atoms
    return {"kind": kind, "bond": bond, "energy": energy[:, None]}


def energy_loss(model, batch, repaired: bool):
    energy, label = model(batch["kind"], batch["bond"]), batch["energy"]
    if repaired: energy = energy.view_as(label)
    return F.mse_loss(energy, label)


def build(repaired: bool) -> Parts:
    strength = torch.randn(kinds, kinds)
    strength = strength + strength.T
    model = Crystal(24)
    data = [crystals(32, strength) for _ in range(40)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=2e-3), data, valid=[crystals(500, strength)],
                 call=lambda model, batch: energy_loss(model, batch, repaired))


def train(parts: Parts, record) -> float:
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(parts.optimizer, 5)
    with record.on(parts.model, parts.optimizer):
        for _ in range(5):
            parts.model.train()
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
            schedule.step()
    batch = parts.valid[0]
    with torch.no_grad(): energy = parts.model.eval()(batch["kind"], batch["bond"])
    return ((energy - batch["energy"][:, 0]).square().mean()/batch["energy"].var()).item()
