"""The activation that is chosen by name is applied once, behind the loop over the linear layers, not in it.

The report, on an example of torch's documentation: the line has to be indented, otherwise four linear layers do as much
as one. It was merged."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pytorch/pytorch#139667", 2024
AREA, CAUSE = "structure", "no non-linearity"
TRUE = set()
PLACE = ("linears.0", "linears.1", "linears.2", "linears.3")


class Linear(nn.Module):
    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs)*(2/inputs)**.5)
        self.bias = nn.Parameter(.1*torch.randn(outputs))

    def forward(self, x): return x @ self.weight + self.bias


class Dynamic(nn.Module):
    "As many layers as are asked for, and an activation that a call may choose."
    def __init__(self, layers: int, size: int, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.linears = nn.ModuleList([Linear(size if i else 4, size) for i in range(layers)])
        self.activations = nn.ModuleDict({"relu": nn.ReLU(), "leaky": nn.LeakyReLU()})
        self.last = Linear(size, 1)

    def forward(self, x, activation: str):
        act = self.activations[activation]
        for linear in self.linears: x = act(linear(x)) if self.repaired else linear(x)
        return self.last(x if self.repaired else act(x))


def points(n: int):
    "Points in four dimensions; the target waves along one of them and turns over with another."
    x = 2*torch.rand(n, 4) - 1
    return x, (6*x[:, :1]).sin()*x[:, 1:2].sign() + x[:, 2:3].abs()


def build(repaired: bool) -> Parts:
    model = Dynamic(4, 16, repaired)
    data = [points(64) for _ in range(60)]
    def call(model, batch): return F.mse_loss(model(batch[0], "relu"), batch[1])
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3), data, call=call, valid=[points(1000)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(10):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad(): return (parts.call(parts.model, parts.valid[0])/parts.valid[0][1].var()).item()
