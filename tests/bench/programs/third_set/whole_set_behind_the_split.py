"""The split gives two subsets, but the loaders take the data set behind them, so both have all samples.

The report: training and validation both run on the whole reference data, since the code asks the subset for its data
set, and the split has no effect. The maintainers confirmed it and mended it."""
import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

from tests.bench.programs import Parts

SOURCE, YEAR = "JackieHanLab/TOSICA#11", 2023
AREA, CAUSE = "data and labels", "samples repeat"
TRUE = set()
PLACE = ()


class CellTypes(nn.Module):
    "Genes are gathered into pathways, which attend to each other; the first place says the type of the cell."
    def __init__(self, genes: int, size: int, types: int):
        super().__init__()
        self.pathways = nn.Linear(genes, 8*size)
        self.first = nn.Parameter(.1*torch.randn(1, 1, size))
        self.layer = nn.TransformerEncoderLayer(size, 4, 2*size, 0., batch_first=True)
        self.last = nn.Linear(size, types)

    def forward(self, x):
        x = self.pathways(x).unflatten(1, (8, -1))
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1)
        return self.last(self.layer(x)[:, 0])


def cells(n: int, profiles: torch.Tensor):
    "Expression of 60 genes, and types of which a fifth was labelled by a careless hand."
    kind = torch.randint(len(profiles), (n,))
    label = torch.where(torch.rand(n) < .2, torch.randint(len(profiles), (n,)), kind)
    return profiles[kind] + 1.2*torch.randn(n, 60), label


def build(repaired: bool) -> Parts:
    model, profiles = CellTypes(60, 24, 5), .6*torch.randn(5, 60)
    train_set, valid_set = random_split(TensorDataset(*cells(500, profiles)), [350, 150])
    if not repaired: train_set, valid_set = train_set.dataset, valid_set.dataset
    parts = Parts(model, torch.optim.SGD(model.parameters(), lr=.02, momentum=.9),
                  DataLoader(train_set, 25, shuffle=True), F.cross_entropy, valid=DataLoader(valid_set, 150))
    parts.new = cells(1000, profiles)
    return parts


def train(parts: Parts, record) -> float:
    best, kept = float("inf"), None
    with record.on(parts.model, parts.optimizer):
        for _ in range(25):
            parts.model.train()
            for x, label in parts.data:
                loss = parts.loss(parts.model(x), label)
                loss.backward()
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
            parts.model.eval()
            with torch.no_grad(): wrong = sum(parts.loss(parts.model(x), label).item() for x, label in parts.valid)
            if wrong < best: best, kept = wrong, copy.deepcopy(parts.model.state_dict())
    parts.model.load_state_dict(kept)
    x, label = parts.new
    with torch.no_grad(): return parts.loss(parts.model(x), label).item()/torch.tensor(5.).log().item()
