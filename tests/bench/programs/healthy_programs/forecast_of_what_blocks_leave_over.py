"""Series of very different sizes are forecast by blocks, each of which takes away what it explained.

Habits of the source: inputs are not scaled, the loss divides instead: the symmetric percentage error, with a mask for
the steps that are missing and a division that gives zero where the divisor is; windows drawn at random from random
series, padded in front; the last value is the base of the forecast; blocks go from the last to the first step; the rate
is halved a few times over the whole run; Adam; gradients clipped at 1.
Score: the percentage error of the last steps of each series by that of repeating the last value. About .1; about 1 for
the untrained model."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "ServiceNow/N-BEATS experiments/trainer.py", 2020
PAST, AHEAD, STEPS, RATE = 24, 6, 300, 2e-3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(PAST if i == 0 else 48, 48) for i in range(3))
        self.basis = nn.Linear(48, PAST + AHEAD)

    def forward(self, x):
        for layer in self.layers: x = torch.relu(layer(x))
        return self.basis(x).split([PAST, AHEAD], -1)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x, mask):
        left, mask, forecast = x.flip(1), mask.flip(1), x[:, -1:]
        for block in self.blocks:
            explained, more = block(left)
            left = (left - explained)*mask
            forecast = forecast + more
        return forecast


def percentage(forecast, target, mask):
    size = forecast.detach().abs() + target.abs()
    return 200*((forecast - target).abs()*torch.where(size == 0, 0., 1/size)*mask).mean()


def series(n: int):
    "Waves of some periods around a level from 20 to 400, of which some are short: zero before their first step."
    t, level = torch.arange(150), 20*20**torch.rand(n, 1)
    period = torch.tensor([6., 8., 12.])[torch.randint(3, (n, 1))]
    turns = 2*torch.pi*(t/period + torch.rand(n, 1))
    trend = 1 + .002*t*(torch.rand(n, 1) - .3)
    x = level*trend*(1 + .4*turns.sin() + .15*(2*turns).cos() + .03*torch.randn(n, 150))
    start = torch.where(torch.rand(n, 1) < .2, torch.randint(100, 115, (n, 1)), 0)
    return x, start


class Windows:
    "Places at random in series at random; the last steps of each are kept for the test."
    def __init__(self, x, start, n: int): self.x, self.start, self.n = x, start, n

    def __len__(self): return self.n

    def __iter__(self):
        for _ in range(self.n):
            rows = torch.randint(len(self.x), (64,))
            yield self.at(rows, 150 - AHEAD - torch.randint(1, 40, (64, 1)))

    def at(self, rows, cut):
        before, after = cut - PAST + torch.arange(PAST), cut + torch.arange(AHEAD)
        there, start = after < 150 - AHEAD, self.start[rows]
        mask = (before >= start).float()
        target = self.x[rows].gather(1, after.clamp(max=149))*there
        return self.x[rows].gather(1, before)*mask, mask, target, there.float()


def call(model, batch):
    x, mask, target, there = batch
    return percentage(model(x, mask), target, there)


def build(repaired: bool) -> Parts:
    model = Forecaster()
    windows = Windows(*series(200), STEPS)
    x, mask, _, _ = windows.at(torch.arange(200), torch.full((200, 1), 150 - AHEAD))
    return Parts(model, torch.optim.Adam(model.parameters(), lr=RATE), windows, call=call,
                 valid=[(x, mask, windows.x[:, -AHEAD:], torch.ones(200, AHEAD))])


def train(parts: Parts, record) -> float:
    model, optimizer, windows = parts.model, parts.optimizer, parts.data
    model.train()
    with record.on(model, optimizer):
        for i, batch in enumerate(windows, 1):
            optimizer.zero_grad()
            loss = parts.call(model, batch)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.)
            optimizer.step()
            for group in optimizer.param_groups: group["lr"] = RATE*.5**(3*i//STEPS)
            record.step(loss)
    model.eval()
    x, mask, target, every = parts.valid[0]
    with torch.no_grad(): wrong = percentage(model(x, mask), target, every)
    return (wrong/percentage(x[:, -1:].expand_as(target), target, every)).item()
