"""Sales of many goods are forecast as a mean and a spread, by a recurrent net that is called for each step.

Habits of the source: the forget gates' bias begins at one; each series is divided by its own mean plus one; a softplus
for the spread; the loss of all steps is a sum over steps with a mask for zero values, a mean over series in each; in
training the true last value is the input, in forecasting the mean of its own; examples are drawn in proportion to their
size; an embedding for each series; the test in eval mode after each epoch.
Score: the sum of absolute errors of forecasts of the last seven steps by that of the series' own mean. About .7; above
2 untrained."""
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from tests.bench.programs import Parts

SOURCE, YEAR = "zhykoties/TimeSeries train.py", 2019
GOODS, PAST, AHEAD, WEEK = 60, 14, 7, 7


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.good, self.cell = nn.Embedding(GOODS, 6), nn.LSTM(1 + 2 + 6, 32)
        self.mean, self.spread = nn.Linear(32, 1), nn.Sequential(nn.Linear(32, 1), nn.Softplus())
        for name, bias in self.cell.named_parameters():
            if "bias" in name: bias.data[32:64].fill_(1.)

    def forward(self, last, when, good, state):
        x = torch.cat([last[:, None], when, self.good(good)], 1)
        h, state = self.cell(x.unsqueeze(0), state)
        return self.mean(h[0])[:, 0], self.spread(h[0])[:, 0] + 1e-6, state


def series():
    "Sales with a week's pattern of each good, of very different sizes; some days nothing was counted."
    t = torch.arange(120)
    pattern = (.6*torch.randn(GOODS, WEEK)).exp()
    level = 30**torch.rand(GOODS, 1)*5
    x = level*pattern[:, t % WEEK]*(1 + .15*torch.randn(GOODS, 120)).clamp(.2)
    return x.masked_fill(torch.rand(GOODS, 120) < .03, 0)


def windows(x, starts):
    "Values divided by the window's mean before the forecast, the times of the week, the good, and what was divided by."
    rows, cut = torch.arange(GOODS).repeat_interleave(len(starts)), torch.tensor(starts).repeat(GOODS)
    where = cut[:, None] + torch.arange(PAST + AHEAD)
    values = x[rows[:, None], where]
    size = values[:, :PAST].mean(1) + 1
    turns = 2*math.pi*(where % WEEK)/WEEK
    return values/size[:, None], torch.stack([turns.sin(), turns.cos()], 2), rows, size


def call(model, batch):
    values, when, good, _ = batch
    loss, state = torch.zeros(()), None
    for t in range(1, values.shape[1]):
        mean, spread, state = model(values[:, t - 1], when[:, t], good, state)
        there = values[:, t] != 0
        loss = loss - torch.distributions.Normal(mean[there], spread[there]).log_prob(values[there, t]).mean()
    return loss


def build(repaired: bool) -> Parts:
    model, x = Forecaster(), series()
    data = TensorDataset(*windows(x[:, :112], list(range(0, 90, 3))))
    sampler = WeightedRandomSampler(data.tensors[3], 640)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-2), DataLoader(data, 64, sampler=sampler), call=call,
                 valid=[windows(x, [120 - PAST - AHEAD])])


@torch.no_grad()
def forecast(model, batch):
    values, when, good, _ = batch
    last, state, said = values[:, 0], None, []
    for t in range(1, PAST + AHEAD):
        mean, _, state = model(last, when[:, t], good, state)
        last = values[:, t] if t < PAST else mean
        said.append(mean)
    return torch.stack(said[PAST - 1:], 1)


def train(parts: Parts, record) -> float:
    model, optimizer, held = parts.model, parts.optimizer, parts.valid[0]
    with record.on(model, optimizer):
        for _ in range(15):
            model.train()
            for batch in parts.data:
                optimizer.zero_grad()
                loss = parts.call(model, batch)
                loss.backward()
                optimizer.step()
                record.step(loss)
            model.eval()
            said = forecast(model, held)
    values, size = held[0], held[3][:, None]
    truth, there, mean = values[:, PAST:], values[:, PAST:] != 0, values[:, :PAST].mean(1, keepdim=True)
    wrong, of_mean = (((guess - truth).abs()*size)[there].sum() for guess in (said, mean.expand_as(truth)))
    return (wrong/of_mean).item()
