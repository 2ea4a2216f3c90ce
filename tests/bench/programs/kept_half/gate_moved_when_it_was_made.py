"""The weights of a gate are moved right where they are made, so a plain tensor is kept and no parameter.

The report: after `.to` a parameter is an ordinary tensor, so the gate between the experts is not learned, and this kept
the model from learning. The author welcomed the repair. The move to a device is a change of the number format here."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "davidmrau/mixture-of-experts#12", 2022
AREA, CAUSE = "parameters", "not registered"
TRUE = set()
PLACE = ("gate", "noise")

experts, inputs = 4, 6


class Mixture(nn.Module):
    "Small experts, of which each sample asks two; noise in training spreads the samples at first."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(inputs, size), nn.ReLU(), nn.Linear(size, 1))
                                      for _ in range(experts)])
        self.gate, self.noise = self.weights(repaired), self.weights(repaired)

    def weights(self, repaired: bool):
        start = torch.zeros(inputs, experts, dtype=torch.float64)
        return nn.Parameter(start.float()) if repaired else nn.Parameter(start).float()

    def forward(self, x):
        scores = x @ self.gate
        if self.training: scores = scores + torch.randn_like(scores)*F.softplus(x @ self.noise)
        top, which = scores.topk(2, 1)
        weights = torch.zeros_like(scores).scatter(1, which, top.softmax(1))
        return (weights*torch.cat([expert(x) for expert in self.experts], 1)).sum(1), weights


def samples(n: int, slopes):
    "Four groups of samples, each with a rule of its own."
    group = torch.randint(0, experts, (n,))
    x = torch.randn(n, inputs) + 3*F.one_hot(group, inputs)
    return x, (x*slopes[group]).sum(1)


def build(repaired: bool) -> Parts:
    slopes = torch.randn(experts, inputs)
    model = Mixture(4, repaired)
    data = [samples(64, slopes) for _ in range(60)]

    def call(model, batch):
        x, y = batch
        output, weights = model(x)
        load = weights.sum(0)
        return F.mse_loss(output, y) + 1e-2*load.var()/load.mean()**2
    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-2), data, call=call, valid=[samples(500, slopes)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(7):
            parts.model.train()
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    x, y = parts.valid[0]
    with torch.no_grad(): return (F.mse_loss(parts.model(x)[0], y)/y.var()).item()
