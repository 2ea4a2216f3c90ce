"""The scale of each quantiser is replaced by a new parameter after the optimizer has been given the old one.

The report: the range of symmetric quantisers is found by the controller, maybe after the optimizer got the list of
parameters, and a parameter that is replaced as a whole is never stepped. The maintainers merged a change in place."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "openvinotoolkit/nncf#327", 2020
AREA, CAUSE = "parameters", "other parameters in the optimizer"
TRUE = {"not in the optimizer", "not trained"}
PLACE = ("0.quantise.scale", "2.quantise.scale", "4.quantise.scale")

levels, inputs, classes = 3, 24, 16


class Quantiser(nn.Module):
    "Rounds to a few levels on both sides of zero, up to a scale that is learned."
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        part = (x/self.scale).clamp(-1, 1)*levels
        return (part + (part.round() - part).detach())*self.scale/levels

    def find_range(self, x, repaired: bool):
        largest = x.detach().abs().max()
        if repaired: self.scale.data.copy_(largest)
        else: self.scale = nn.Parameter(largest)


class QuantisedLinear(nn.Module):
    def __init__(self, size: int, outputs: int):
        super().__init__()
        self.quantise, self.linear = Quantiser(), nn.Linear(size, outputs)

    def forward(self, x): return self.linear(self.quantise(x))


def find_ranges(model, x, repaired: bool):
    "The controller: one batch, layer by layer."
    with torch.no_grad():
        for layer in model:
            if isinstance(layer, QuantisedLinear): layer.quantise.find_range(x, repaired)
            x = layer(x)


def readings(n: int, centres):
    "Readings near one of the centres; now and then one of them is at the end of its range."
    kind = torch.randint(classes, (n,))
    x = centres[kind] + .8*torch.randn(n, inputs)
    return torch.where(torch.rand(n, inputs) < .004, 8*x.sign(), x), kind


def build(repaired: bool) -> Parts:
    centres = .8*torch.randn(classes, inputs)
    model = nn.Sequential(QuantisedLinear(inputs, 48), nn.ReLU(), QuantisedLinear(48, 48), nn.ReLU(),
                          QuantisedLinear(48, classes))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    data = [readings(64, centres) for _ in range(60)]
    find_ranges(model, data[0][0], repaired)
    return Parts(model, optimizer, data, F.cross_entropy, valid=[readings(1000, centres)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(10):
            for x, kind in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), kind)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, kind = parts.valid[0]
    with torch.no_grad(): return (parts.loss(parts.model(x), kind)/torch.tensor(float(classes)).log()).item()
