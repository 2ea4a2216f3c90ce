"""The best weights of a training are kept without a copy, so they become the last ones.

The report: the model that is kept as the best goes on to be updated, because a state dict refers to the parameters.
With more epochs another result came out although the best epoch was the same. The maintainer agreed, and copies it."""
import copy

import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "WenjieDu/PyPOTS#667", 2025
AREA, CAUSE = "loop", "state is lost"
TRUE = set()
PLACE = ()

moments, features = 10, 4


class Imputer(nn.Module):
    "Fills what is missing in a series, from what is there and where it is."
    def __init__(self, size: int):
        super().__init__()
        layer = nn.TransformerEncoderLayer(size, 2, 4*size, dropout=0., batch_first=True)
        self.front, self.place = nn.Linear(2*features, size), nn.Parameter(.1*torch.randn(moments, size))
        self.layers, self.last = nn.TransformerEncoder(layer, 2), nn.Linear(size, features)

    def forward(self, x, there):
        return self.last(self.layers(self.front(torch.cat([x*there, there], 2)) + self.place))


def series(n: int):
    "Four noisy mixtures of two waves each, and a mask of what is hidden."
    time = torch.arange(moments).view(1, -1, 1)/3
    waves = (time*torch.tensor([1., 2.]) + 6.28*torch.rand(n, 1, 2)).sin()
    x = waves @ torch.tensor([[1., .5, -.5, .3], [.3, -.8, .5, 1.]])
    return x + .5*torch.randn(n, moments, features), (torch.rand(n, moments, features) < .6).float()


def hidden_loss(model, batch):
    x, there = batch
    return ((model(x, there) - x).square()*(1 - there)).sum()/(1 - there).sum()


def build(repaired: bool) -> Parts:
    model, (x, there) = Imputer(24), series(96)
    data = list(zip(x.split(32), there.split(32)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    return Parts(model, optimizer, data, call=hidden_loss, valid=[series(128)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, least, best = parts.model, float("inf"), None
    with record.on(model, parts.optimizer):
        for _ in range(60):
            model.train()
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
            model.eval()
            with torch.no_grad(): error = parts.call(model, parts.valid[0]).item()
            if error < least:
                least, best = error, model.state_dict()
                if parts.repaired: best = copy.deepcopy(best)
    model.load_state_dict(best)
    x, there = series(1024)
    with torch.no_grad(): return (parts.call(model, (x, there))/x.var()).item()
