"""An LSTM forecasts sales with covariates, one step at a time, as a normal distribution.

Habits of the source: the net is called once a time step and the losses are summed over the window before one
backward pass; zeros are missing values, which are replaced by the net's own mean and are left out of the loss;
series are divided by their own mean; an embedding of the series; the forget gates' biases are set to one; the
likelihood may be positive, so that the loss goes below zero; in tests the net eats its own means.
Error: absolute error of forecasts over that of the last value: 0.3 to 0.5; untrained 1.5 to 2."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "zhykoties/TimeSeries train.py", 2019
SERIES, KNOWN, AHEAD = 10, 14, 7


class DeepAR(nn.Module):
    def __init__(self, size=24):
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(SERIES, 4), nn.LSTM(1 + 8 + 4, size)
        bias = self.lstm.bias_ih_l0, self.lstm.bias_hh_l0
        for b in bias: b.data[size:2*size].fill_(1.)
        self.mu, self.sigma = nn.Linear(size, 1), nn.Sequential(nn.Linear(size, 1), nn.Softplus())

    def forward(self, x, series, state=None):
        out, state = self.lstm(torch.cat([x, self.embedding(series)], 1)[None], state)
        return self.mu(out[0])[:, 0], self.sigma(out[0])[:, 0], state


def shop(n, levels):
    "Windows of sales with a weekly pattern and a jump on days of an offer; a few values are missing."
    series = torch.randint(0, SERIES, (n,))
    day = torch.randint(0, 7, (n, 1)) + torch.arange(KNOWN + AHEAD)
    offer = (torch.rand(n, KNOWN + AHEAD) < .2).float()
    week = 1 + .5*(day*2*torch.pi/7 + series[:, None]).sin()
    sales = levels[series][:, None]*week*(1 + .8*offer)*(1 + .08*torch.randn(n, KNOWN + AHEAD))
    sales = sales*(torch.rand_like(sales) > .03)
    scale = 1 + sales[:, :KNOWN].mean(1, keepdim=True)
    return torch.cat([F.one_hot(day % 7, 7).float(), offer[..., None]], 2), sales/scale, series, scale[:, 0]


def call(model, batch):
    covariates, sales, series, _ = batch
    state, loss, before = None, torch.zeros(1), torch.zeros(len(series))
    for t in range(sales.shape[1]):
        mu, sigma, state = model(torch.cat([before[:, None], covariates[:, t]], 1), series, state)
        there = sales[:, t] != 0
        loss = loss - torch.distributions.Normal(mu[there], sigma[there]).log_prob(sales[there, t]).mean()
        before = torch.where(there, sales[:, t], mu.detach())
    return loss.sum()


def forecast(model, batch):
    covariates, sales, series, _ = batch
    state, before, found = None, torch.zeros(len(series)), []
    for t in range(sales.shape[1]):
        mu, _, state = model(torch.cat([before[:, None], covariates[:, t]], 1), series, state)
        before = torch.where(sales[:, t] != 0, sales[:, t], mu) if t < KNOWN else mu
        found.append(mu)
    return torch.stack(found[KNOWN:], 1)


def build(repaired: bool) -> Parts:
    levels = torch.exp(2 + torch.randn(SERIES))
    data = DataLoader(TensorDataset(*shop(480, levels)), batch_size=32, shuffle=True)
    model = DeepAR()
    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-2), data, call=call, valid=[shop(200, levels)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(5):
            model.train()
            for batch in parts.data:
                optimizer.zero_grad()
                loss = call(model, batch)
                loss.backward()
                optimizer.step()
                record.step(loss)
            model.eval()
            with torch.no_grad(): found = forecast(model, parts.valid[0])
    _, sales, _, scale = parts.valid[0]
    ahead, last = sales[:, KNOWN:], sales[:, KNOWN - 1:KNOWN]
    off, guess = (found - ahead).abs(), (last - ahead).abs()
    there, scale = ahead != 0, scale[:, None].expand_as(ahead)
    return ((off*scale)[there].sum()/(guess*scale)[there].sum()).item()
