"""The Gaussian likelihood of a forecast gets the standard deviation where it takes the variance.

The report is the merged change of the library, whose author noticed it when another loss was added. The forecast is
right in the mean, but its range is far too narrow."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "unit8co/darts#1162", 2022
AREA, CAUSE = "loss and task", "the loss takes another form"
TRUE = set()
PLACE = ()


class Forecast(nn.Module):
    "The mean and the deviation of the next number."
    def __init__(self):
        super().__init__()
        self.past = nn.GRU(2, 24, batch_first=True)
        self.last = nn.Linear(24, 2)

    def forward(self, x):
        mean, raw = self.last(self.past(x)[0][:, -1]).chunk(2, 1)
        return mean, F.softplus(raw)


def series(n: int):
    "Waves with noise, and how strong the noise is; the target is the next number."
    noise = .05 + .25*torch.rand(n, 1)
    time = torch.arange(13)*.5 + 6.28*torch.rand(n, 1)
    x = time.sin() + noise*torch.randn(n, 13)
    return torch.stack([x[:, :12], noise.expand(n, 12)], 2), x[:, 12:]


def build(repaired: bool) -> Parts:
    model = Forecast()

    def loss(output, target):
        mean, deviation = output
        return F.gaussian_nll_loss(mean, target, deviation**2 if repaired else deviation)

    data = [series(64) for _ in range(25)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3), data, loss, valid=[series(2048)])


def range_error(y, mean, deviation):
    "How wide the range of 90 % is, and twenty times how far numbers are outside of it."
    low, high = mean - 1.645*deviation, mean + 1.645*deviation
    return (high - low + 20*F.relu(low - y) + 20*F.relu(y - high)).mean()


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(16):
            for x, y in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), y)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, y = parts.valid[0]
    with torch.no_grad(): return (range_error(y, *parts.model(x))/range_error(y, y.mean(), y.std())).item()
