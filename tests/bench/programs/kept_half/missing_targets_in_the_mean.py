"""Missing targets are NaN and the mean leaves them out, but their gradient is zero times NaN.

The report: a network for data with missing values learns nothing, since leaving NaN out of the mean does not keep it
out of the gradients. The merged change takes it out of these by a hook."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "BLAST-AI-ML/synapse#237", 2025
AREA, CAUSE = "precision", "NaN or Inf"
TRUE = set()
PLACE = ()


class Surrogate(nn.Module):
    "Three results of an experiment from its settings."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.layers = nn.Sequential(nn.Linear(5, size), nn.Tanh(), nn.Linear(size, size), nn.Tanh(), nn.Linear(size, 3))

    def forward(self, x):
        x = self.layers(x)
        if self.repaired and x.requires_grad: x.register_hook(lambda gradient: gradient.nan_to_num())
        return x


def known_error(output, target): return (output - target).square().nanmean()


def experiments(n: int):
    "In a tenth of the experiments a result was not measured."
    x = torch.rand(n, 5)*2 - 1
    y = torch.stack([(3*x[:, 0]).sin() + x[:, 1], x[:, 1]*x[:, 2], x[:, 3].square() - x[:, 4]], 1)
    return x, torch.where(torch.rand(n, 3) < .1, torch.nan, (y - y.mean(0))/y.std(0))


def build(repaired: bool) -> Parts:
    model = Surrogate(32, repaired)
    x, y = experiments(512)
    data = [(x[i:i + 32], y[i:i + 32]) for i in range(0, 512, 32)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3), data, known_error, valid=[experiments(512)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(30):
            for x, y in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), y)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, y = parts.valid[0]
    with torch.no_grad(): return parts.loss(parts.model(x), y).item()
