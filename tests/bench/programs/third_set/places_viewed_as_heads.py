"""Queries, keys and values have the places before the heads, and a `view` is to bring the heads before the places.

The report, of a transformer that forecasts long series: a `view` breaks the relation between places and heads, as it
leaves the numbers in their order. The authors thanked for it, mended it, and said that only this branch had it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "zhouhaoyi/Informer2020#59", 2021
AREA, CAUSE = "structure", "places mixed up"
TRUE = {"input unused", "samples alike", "loss does not fall", "cannot learn by heart"}
PLACE = ("layers.0.attention", "layers.1.attention")

past, future, day = 24, 8, 8


class SparseAttention(nn.Module):
    "Only queries that prefer some keys look at them; the others get the mean of all values."
    def __init__(self, size: int, heads: int, repaired: bool):
        super().__init__()
        self.heads, self.repaired = heads, repaired
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))
        self.out = nn.Linear(size, size)

    def split(self, x):
        n, places, _ = x.shape
        x = x.view(n, places, self.heads, -1)
        return x.transpose(1, 2) if self.repaired else x.view(n, self.heads, places, -1)

    def join(self, x):
        n, _, places, _ = x.shape
        return (x.transpose(1, 2) if self.repaired else x).reshape(n, places, -1)

    def forward(self, x):
        query, key, value = (self.split(layer(x)) for layer in (self.query, self.key, self.value))
        scores = query @ key.mT/query.shape[-1]**.5
        prefers = scores.amax(-1) - scores.mean(-1)
        lazy = prefers < prefers.topk(20, -1).values[..., -1:]
        seen = torch.where(lazy[..., None], value.mean(2, keepdim=True), scores.softmax(-1) @ value)
        return self.out(self.join(seen))


class Layer(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.attention = SparseAttention(size, 4, repaired)
        self.wide = nn.Sequential(nn.Linear(size, 2*size), nn.GELU(), nn.Linear(2*size, size))
        self.norms = nn.ModuleList([nn.LayerNorm(size), nn.LayerNorm(size)])

    def forward(self, x):
        x = self.norms[0](x + self.attention(x))
        return self.norms[1](x + self.wide(x))


class Forecast(nn.Module):
    "The past as it was and the future as zeros; all of the future is told at once."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.value, self.place = nn.Linear(1, size), nn.Parameter(torch.randn(past + future, size))
        self.layers = nn.Sequential(Layer(size, repaired), Layer(size, repaired))
        self.last = nn.Linear(size, 1)

    def forward(self, x):
        x = F.pad(x, (0, future))
        return self.last(self.layers(self.value(x[..., None]) + self.place))[:, past:, 0]


def loads(n: int):
    "Each series has a day of its own, which comes again with noise."
    x = torch.randn(n, 1, day).expand(n, (past + future)//day, day).flatten(1)
    x = x + .3*torch.randn_like(x)
    return x[:, :past], x[:, past:]


def build(repaired: bool) -> Parts:
    model = Forecast(32, repaired)
    data = [loads(24) for _ in range(200)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, F.mse_loss, valid=[loads(400)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for x, y in parts.data:
            parts.optimizer.zero_grad()
            loss = parts.loss(parts.model(x), y)
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    x, y = parts.valid[0]
    with torch.no_grad(): return (parts.loss(parts.model(x), y)/y.var()).item()
