"""A forecaster reads values of earlier steps, counted from the step that it forecasts, at the step before it.

The merged change takes one from each lag: at a step, the network has the data up to it and forecasts the next one, so
a lag of 1 gave it the value before the last, and the last one was never seen. A reviewer asked whether the change
lets the answer in; the author shows that it does not."""
import torch
from torch import nn
from torch.distributions import StudentT
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "awslabs/gluonts#2618", 2023
AREA, CAUSE = "data and labels", "labels do not belong to inputs"
TRUE = {"target too far ahead"}
PLACE = ()

history, steps = 13, 24


class Forecaster(nn.Module):
    "An LSTM over values of earlier steps and the time of day; it returns a distribution of the next value."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        lags = [1, 2, 3, 12]
        self.lags = [lag - 1 for lag in lags] if repaired else lags
        self.lstm = nn.LSTM(len(lags) + 2, size, 2, batch_first=True, dropout=.1)
        self.args = nn.Linear(size, 3)

    def forward(self, past, time):
        "`past` ends with the last value that is known at the last step; a lag of 0 would be that value."
        lagged = [past[:, history - lag:history - lag + steps] for lag in self.lags]
        states = self.lstm(torch.cat([torch.stack(lagged, 2), time], 2))[0]
        df, loc, scale = self.args(states).unbind(2)
        return StudentT(2 + F.softplus(df), loc, F.softplus(scale) + 1e-4)


def series(n: int):
    "Loads that follow the time of day and wander; each is divided by its own mean."
    start, t = torch.randint(0, 12, (n, 1)), torch.arange(history + steps + 1)
    wander, x = torch.zeros(n), []
    for _ in t:
        wander = .95*wander + .3*torch.randn(n)
        x.append(wander)
    hour = 2*torch.pi*(start + t)/12
    x = 3 + .6*hour.sin() + torch.stack(x, 1)
    x = x/x.abs().mean(1, keepdim=True)
    time = torch.stack([hour.sin(), hour.cos()], 2)
    return x[:, :-1], time[:, history + 1:], x[:, history + 1:]


def build(repaired: bool) -> Parts:
    model = Forecaster(24, repaired)
    def call(model, batch): return -model(*batch[:2]).log_prob(batch[2]).mean()
    data = [series(32) for _ in range(50)]
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-8)
    return Parts(model, optimizer, data, call=call, valid=[series(400)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            parts.model.train()
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 10.)
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    past, time, target = parts.valid[0]
    with torch.no_grad(): found = parts.model(past, time).mean
    return (found - target).abs().sum().item()/(target - target.mean()).abs().sum().item()
