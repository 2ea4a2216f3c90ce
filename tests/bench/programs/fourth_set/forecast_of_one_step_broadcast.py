"""A forecast of one step has the shape (batch, 1) and its target (batch): the loss compares each with each.

The author of the merged change saw a warning of torch while four networks for forecasts ran, and gave the target the
shape of the forecast. With more than one step the shapes had fitted. Here it is the network that attends over series:
the whole window of a series is one token."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "jsboige/CoursIA#926", 2026
AREA, CAUSE = "loss and task", "labels broadcast"
TRUE = {"constant output", "samples alike"}
PLACE = ()

window, series = 24, 6


class OverSeries(nn.Module):
    def __init__(self, size: int, steps: int):
        super().__init__()
        self.embed = nn.Linear(window, size)
        layer = nn.TransformerEncoderLayer(size, 4, 2*size, .1, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(size), nn.Linear(size, steps)

    def forward(self, x):
        tokens = self.encoder(self.embed(x.transpose(1, 2)))
        return self.head(self.norm(tokens))[:, 0]  # the first series is forecast


def market(length: int):
    "Series that follow each other: the first is what the others were a step or two ago, with noise."
    drift = torch.randn(length + 8, series).cumsum(0)
    slow = drift - nn.functional.avg_pool1d(drift.T[None], 9, 1, 4, count_include_pad=False)[0].T
    x = slow[8:].clone()
    x[:, 0] = .6*slow[7:-1, 1] - .5*slow[6:-2, 2] + .2*torch.randn(length)
    return (x - x.mean(0))/x.std(0)


def windows(x):
    inputs = torch.stack([x[i:i + window] for i in range(len(x) - window)])
    return inputs, x[window:, 0]


def build(repaired: bool) -> Parts:
    x = market(1500)
    inputs, target = windows(x[:1200])
    order = torch.randperm(len(inputs))
    model = OverSeries(32, 1)
    criterion = nn.MSELoss()

    def loss(output, target): return criterion(output, target.view_as(output) if repaired else target)

    data = list(zip(inputs[order].split(64), target[order].split(64)))
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=1e-3), data, loss, valid=[windows(x[1200:])])


def train(parts: Parts, record) -> float:
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(parts.optimizer, 12)
    with record.on(parts.model, parts.optimizer):
        for _ in range(12):
            parts.model.train()
            for inputs, target in parts.data:
                parts.optimizer.zero_grad()
                output = parts.model(inputs)
                loss = parts.loss(output, target)
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 1.)
                parts.optimizer.step()
                record.step(loss)
            plan.step()
    parts.model.eval()
    inputs, target = parts.valid[0]
    with torch.no_grad(): return ((parts.model(inputs)[:, 0] - target)**2).mean().item()/target.var().item()
