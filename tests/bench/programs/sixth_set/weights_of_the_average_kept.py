"""To be tested, a network gets its averaged weights; what should bring its own back is no copy, so they are gone.

The report: a network that folds proteins keeps `state_dict()` before it loads the averaged weights for validation, and
loads it again afterwards. It refers to the same tensors, so training goes on from the average after each epoch. The
author of the report saw convergence become much slower; the maintainer agreed and merged the repair."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "aqlaboratory/openfold#90", 2022
AREA, CAUSE = "loop", "state is lost"
TRUE = {"learning rate too small"}
PLACE = ()
DECAY = .98


class Folding(nn.Module):
    "Attention over the residues of a chain, and the distance of each pair of them."
    def __init__(self, kinds: int, length: int, size: int = 32):
        super().__init__()
        self.kinds, self.places = nn.Embedding(kinds, size), nn.Parameter(.1*torch.randn(length, size))
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(size, 4, 2*size, 0., batch_first=True)
                                    for _ in range(2))
        self.place = nn.Linear(size, 3)

    def forward(self, chain):
        x = self.kinds(chain) + self.places
        for layer in self.layers: x = layer(x)
        place = self.place(x)
        return (place.unsqueeze(1) - place.unsqueeze(2)).square().sum(3).add(1e-3).sqrt()


def chains(n: int, turn):
    "Each residue turns the chain by its own angle, so the whole chain decides where the last ones are."
    chain = torch.randint(len(turn), (n, 10))
    angle = turn[chain].cumsum(1)
    place = torch.stack([angle[..., 0].cos(), angle[..., 0].sin(), angle[..., 1].sin()], 2).cumsum(1)/2
    return chain, torch.cdist(place, place)


class Average:
    "A copy of all weights that follows them slowly."
    def __init__(self, model): self.weights = copy.deepcopy(model.state_dict())

    def update(self, model):
        for name, value in model.state_dict().items(): self.weights[name].lerp_(value, 1 - DECAY)


def build(repaired: bool) -> Parts:
    model, turn = Folding(6, 10), torch.randn(6, 2)
    chain, distance = chains(256, turn)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return Parts(model, optimizer, list(zip(chain.split(32), distance.split(32))), F.mse_loss,
                 valid=[chains(256, turn)], repaired=repaired)


def validate(parts: Parts, average: Average) -> float:
    kept = parts.model.state_dict()
    if parts.repaired: kept = copy.deepcopy(kept)
    parts.model.load_state_dict(average.weights)
    chain, distance = parts.valid[0]
    parts.model.eval()
    with torch.no_grad(): error = parts.loss(parts.model(chain), distance)/distance.var()
    parts.model.load_state_dict(kept)
    return error.item()


def train(parts: Parts, record) -> float:
    model, average = parts.model, Average(parts.model)
    with record.on(model, parts.optimizer):
        for _ in range(25):
            model.train()
            for chain, distance in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(model(chain), distance)
                loss.backward()
                parts.optimizer.step()
                average.update(model)
                record.step(loss)
            error = validate(parts, average)
    return error
