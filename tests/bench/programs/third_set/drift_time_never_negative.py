"""A regression for peptides ends with a ReLU, and the numbers before it begin below zero: the output is always zero.

The report, a change to a tutorial, by a reader after trying it: the LSTM returned zero for all peptides of the
validation data. With an unlucky start what comes before the last ReLU is negative everywhere, so there is no gradient;
without the ReLU it learns."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "ProteomicsML/ProteomicsML#203", 2026
AREA, CAUSE = "structure", "activation at the wrong place"
TRUE = {"dead units", "constant output", "input unused", "samples alike", "loss does not fall", "gradients vanish",
        "not trained", "cannot learn by heart"}
PLACE = ("last", "relu")

acids, length = 20, 10


class Peptides(nn.Module):
    "An LSTM over the amino acids of a peptide; its last state and two layers give one number."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.embed = nn.Embedding(acids, size)
        self.lstm = nn.LSTM(size, size, batch_first=True)
        self.inner, self.last = nn.Linear(size, size), nn.Linear(size, 1)
        self.relu = nn.Identity() if repaired else nn.ReLU()

    def forward(self, peptide):
        state = self.lstm(self.embed(peptide))[0][:, -1]
        return self.relu(self.last(self.inner(state).relu()))[:, 0]


def peptides(n: int, weight):
    "How long a peptide drifts, from 0 to 1, follows from its amino acids."
    x = torch.randint(0, acids, (n, length))
    return x, (weight[x].mean(1) + .02*torch.randn(n)).clamp(0, 1)


def build(repaired: bool) -> Parts:
    weight = torch.rand(acids)
    with torch.random.fork_rng(devices=[]):  # the seed of the program, which happens to be an unlucky one
        torch.manual_seed(10)
        model = Peptides(16, repaired)
    data = [peptides(64, weight) for _ in range(60)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, F.mse_loss, valid=[peptides(400, weight)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            for x, drift in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), drift)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, drift = parts.valid[0]
    with torch.no_grad(): return (parts.loss(parts.model(x), drift)/drift.var()).item()
