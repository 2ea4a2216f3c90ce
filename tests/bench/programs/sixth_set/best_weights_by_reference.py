"""The weights of the best epoch are kept by reference, so those that are tested are the last ones.

The report: a network that predicts how strongly a drug binds to a protein keeps `state_dict()` of the best epoch, which
goes on changing with the training. The author of the report trained anew with a copy, gave the errors, and the change
was merged; the maintainers said that they update their results."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "THGLab/LP-PDBBind#1", 2024
AREA, CAUSE = "loop", "state goes on"
TRUE = set()
PLACE = ()


class Binding(nn.Module):
    "Convolutions over the letters of a drug and of a protein, and linear layers over both."
    def __init__(self, letters: int, size: int = 24):
        super().__init__()
        self.of_drug, self.of_protein = nn.Embedding(letters, 16), nn.Embedding(letters, 16)
        self.drug, self.protein = nn.Conv1d(16, size, 3), nn.Conv1d(16, size, 4)
        self.last = nn.Sequential(nn.Linear(2*size, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, drug, protein):
        drug = self.drug(self.of_drug(drug).transpose(1, 2)).relu().amax(2)
        protein = self.protein(self.of_protein(protein).transpose(1, 2)).relu().amax(2)
        return self.last(torch.cat([drug, protein], 1)).squeeze(1)


def pairs(n: int, noise: float = 1.):
    "Letters of which a few decide, and a measured strength that is mostly noise."
    drug, protein = torch.randint(0, 8, (n, 8)), torch.randint(0, 8, (n, 12))
    strength = 1.5*((drug < 2).sum(1) - 2.) + ((protein == 3).sum(1) - 1.5)
    return drug, protein, strength/1.6 + noise*torch.randn(n)


def error_of(model, batch):
    drug, protein, strength = batch
    return F.mse_loss(model(drug, protein), strength)


def build(repaired: bool) -> Parts:
    model = Binding(8)
    drug, protein, strength = pairs(192)
    data = [(drug[i:i + 32], protein[i:i + 32], strength[i:i + 32]) for i in range(0, 192, 32)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, call=error_of,
                 valid=[pairs(256), pairs(512, 0.)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    to_choose, to_test = parts.valid
    lowest, best = float("inf"), None
    with record.on(model, optimizer):
        for _ in range(70):
            model.train()
            for batch in parts.data:
                optimizer.zero_grad()
                loss = parts.call(model, batch)
                loss.backward()
                optimizer.step()
                record.step(loss)
            model.eval()
            with torch.no_grad(): error = parts.call(model, to_choose).item()
            if error < lowest:
                lowest, best = error, model.state_dict()
                if parts.repaired: best = copy.deepcopy(best)
    model.load_state_dict(best)
    with torch.no_grad(): return (parts.call(model, to_test)/to_test[2].var()).item()
