"""Sets are padded to one length, and the scores of a padded row are all minus infinity: its softmax is NaN.

The report: a set transformer on graphs gives NaN after one epoch. The padded rows are taken out again after the layer,
but zero times NaN comes back through them. The author found that, and filling the NaN of the softmax mended it; the
maintainers confirmed the bug."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "dmlc/dgl#2657", 2021
AREA, CAUSE = "precision", "NaN or Inf"
TRUE = set()
PLACE = ("layers.0", "layers.1")


class SetAttention(nn.Module):
    "Attention between the members of each set; members that are padding neither look nor are seen."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.repaired, self.all, self.out = repaired, nn.Linear(size, 3*size), nn.Linear(size, size)
        self.after = nn.Sequential(nn.LayerNorm(size), nn.Linear(size, 2*size), nn.ReLU(), nn.Linear(2*size, size))

    def forward(self, x, there):
        query, key, value = self.all(x).chunk(3, 2)
        score = (query @ key.transpose(1, 2)/x.shape[2]**.5)
        score = score.masked_fill(~(there[:, :, None] & there[:, None]), -torch.inf)
        weight = score.softmax(2)
        if self.repaired: weight = weight.masked_fill(~there[:, :, None], 0)
        x = x + self.out(weight @ value)
        return x + self.after(x)


class SetTransformer(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.first = nn.Linear(4, size)
        self.layers = nn.ModuleList(SetAttention(size, repaired) for _ in range(2))
        self.last = nn.Linear(size, 1)

    def forward(self, x, there):
        x = self.first(x)
        for layer in self.layers:
            packed = layer(x, there)[there]
            x = torch.zeros_like(x).masked_scatter(there[:, :, None], packed)
        return self.last(x.sum(1)/there.sum(1, keepdim=True))


def sets(n: int):
    "Sets of 3 to 8 members with four features; the target is the mean distance to the centre."
    there = torch.arange(8) < torch.randint(3, 9, (n, 1))
    x = (torch.randn(n, 8, 4)*torch.empty(n, 1, 1).uniform_(.3, 1.5) + torch.randn(n, 1, 4))*there[:, :, None]
    count = there.sum(1, keepdim=True)
    distance = (x - x.sum(1, keepdim=True)/count[:, :, None]).norm(dim=2)*there
    return x, there, distance.sum(1, keepdim=True)/count - 1.5


def build(repaired: bool) -> Parts:
    model = SetTransformer(24, repaired)
    data = list(zip(*(part.split(64) for part in sets(2048))))

    def call(model, batch): return F.mse_loss(model(*batch[:2]), batch[2])

    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, call=call, valid=[sets(512)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad(): return (parts.call(parts.model, parts.valid[0])/parts.valid[0][2].var()).item()
