"""The last ReLU of a network for population counts returns zeros only, for every place and from the start.

The report, by one of the authors: sometimes the first solution is zero everywhere because of the ReLU, so there is no
gradient; a softplus should take its place. The report was closed; what the change brought is not told."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "jvargasmu/population_estimation#68", 2021
AREA, CAUSE = "structure", "dead units"
TRUE = {"loss does not fall", "constant output", "cannot learn by heart"}
PLACE = ("end", "scale")

features, side = 6, 8


class Density(nn.Module):
    "How many people there are per building, place by place; a region has the sum over its buildings."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.scale = nn.Sequential(nn.Conv2d(features, size, 1), nn.ReLU(), nn.Conv2d(size, size, 1), nn.ReLU(),
                                   nn.Conv2d(size, 1, 1))
        self.end = nn.Softplus() if repaired else nn.ReLU()
        nn.init.constant_(self.scale[-1].bias, -1.)  # an unlucky start, which the report had now and then

    def forward(self, place, buildings): return (self.end(self.scale(place))[:, 0]*buildings).sum((1, 2))


def regions(n: int, rule):
    "Lights, slopes, roads and so on of each place, where the buildings are, and the count of the census."
    place = torch.rand(n, features, 1, 1) + .3*torch.rand(n, features, side, side)
    buildings = (torch.rand(n, side, side) < .2 + .6*torch.rand(n, 1, 1)).float()
    people = (torch.einsum("nfhw,f->nhw", place, rule).exp()*buildings).sum((1, 2))
    return place, buildings, people


def build(repaired: bool) -> Parts:
    rule = torch.linspace(-1, 1, features)[torch.randperm(features)]
    model = Density(32, repaired)
    data = [regions(8, rule) for _ in range(50)]
    def call(model, batch): return F.l1_loss((1 + model(*batch[:2])).log(), (1 + batch[2]).log())
    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-3), data, call=call, valid=[regions(300, rule)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            parts.model.train()
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    place, buildings, people = parts.valid[0]
    with torch.no_grad(): return ((parts.model(place, buildings) - people).abs().mean()/people.mean()).item()
