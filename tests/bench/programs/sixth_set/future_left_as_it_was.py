"""Each window of a series is scaled by the mean and the deviation of its past, and its future stays as it was.

The report: with a scaler that is fitted to each window, a library for forecasts returns a scaled past and a raw target,
so that the model sees numbers around zero and has to write numbers in the hundreds. A maintainer wrote the report and
says what has to be done; several authors measured it."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from tests.bench.programs import Parts

SOURCE, YEAR = "sktime/pytorch-forecasting#2360", 2026
AREA, CAUSE = "data and labels", "targets not scaled"
TRUE = {"learning rate too small"}
PLACE = ()
PAST, AHEAD = 20, 5


class Forecaster(nn.Module):
    "An LSTM reads the past, and another one goes on from its state with the season of the days to come."
    def __init__(self, size: int):
        super().__init__()
        self.reader, self.writer = nn.LSTM(2, size, batch_first=True), nn.LSTM(1, size, batch_first=True)
        self.last = nn.Linear(size, 1)

    def forward(self, past, season):
        _, state = self.reader(past)
        return self.last(self.writer(season, state)[0])[..., 0]


class Windows(Dataset):
    "Windows of the sales of many shops, each with a level and a season of its own."
    def __init__(self, shops: int, repaired: bool):
        days = torch.arange(60.)
        self.season = (2*torch.pi*days/7).sin()
        level = 50 + 150*torch.rand(shops, 1)
        swing = .05 + .1*torch.rand(shops, 1)
        trend = .004*torch.randn(shops, 1)
        self.sales = level*(1 + swing*self.season + trend*days + .01*torch.randn(shops, 60))
        self.repaired, self.per_shop = repaired, 60 - PAST - AHEAD + 1

    def __len__(self): return len(self.sales)*self.per_shop//6

    def __getitem__(self, i):
        shop, start = divmod(6*i, self.per_shop)
        window, season = (part[start:start + PAST + AHEAD] for part in (self.sales[shop], self.season))
        mean, deviation = window[:PAST].mean(), window[:PAST].std()
        scaled = (window - mean)/deviation
        past = torch.stack([scaled[:PAST], season[:PAST]], 1)
        future = scaled[PAST:] if self.repaired else window[PAST:]
        return past, season[PAST:, None], future, torch.stack([mean, deviation]), window[PAST:]


def build(repaired: bool) -> Parts:
    model = Forecaster(24)
    loader, valid = DataLoader(Windows(150, repaired), 32, shuffle=True), DataLoader(Windows(40, repaired), 256)

    def call(model, batch): return F.mse_loss(model(*batch[:2]), batch[2])

    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3), list(loader), call=call, valid=list(valid))


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 10.)
                parts.optimizer.step()
                record.step(loss)
    past, season, _, scale, future = parts.valid[0]
    with torch.no_grad(): found = parts.model(past, season)*scale[:, 1:] + scale[:, :1]
    return ((found - future).square().mean()/scale[:, 1].square().mean()).item()
