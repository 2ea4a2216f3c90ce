"""A recurrent forecaster gets, at each step of its decoder, the value of the very step that it has to foretell.

The report: forecasts look too good, and change when the future is changed. A reader traced it to the scaled target,
which is fed to the decoder without a shift by one step; the maintainer marked it as a bug."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "sktime/pytorch-forecasting#182", 2020
AREA, CAUSE = "data and labels", "the answer is among the inputs"
TRUE = {"target among the inputs", "later places are seen"}
PLACE = ()

past, future = 16, 8


class Forecaster(nn.Module):
    "An LSTM over known features and the target so far; a normal distribution for each step."
    def __init__(self, size: int):
        super().__init__()
        self.memory, self.last = nn.LSTM(3, size, batch_first=True), nn.Linear(size, 2)

    def forward(self, x, state=None):
        hidden, state = self.memory(x, state)
        mean, wide = self.last(hidden).unbind(-1)
        return mean, nn.functional.softplus(wide) + 1e-3, state


def sales(n: int):
    "A level, a weekly wave, the effect of a known offer, and noise that lasts."
    time, offer = torch.arange(past + future), (torch.rand(n, past + future) < .3).float()
    week = (2*torch.pi*(time + torch.randint(0, 7, (n, 1)))/7).sin()
    noise = torch.randn(n, past + future)
    for i in range(1, past + future): noise[:, i] = .5*noise[:, i - 1] + .6*noise[:, i]
    return torch.stack([offer, week], 2), .8*week + 1.5*(offer - .3) + .4*noise


def likelihood(model, batch, repaired: bool):
    "Of all steps but the first, given the known features and the target of the step before."
    x, y = batch
    given = y[:, :-1] if repaired else y[:, 1:]
    mean, wide, _ = model(torch.cat([x[:, 1:], given[..., None]], 2))
    return -torch.distributions.Normal(mean, wide).log_prob(y[:, 1:]).mean()


def build(repaired: bool) -> Parts:
    model = Forecaster(32)
    data = [sales(32) for _ in range(30)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-2), data,
                 call=lambda model, batch: likelihood(model, batch, repaired), valid=[sales(512)])


def foretell(model, x, y):
    "Step by step from the last value that is known."
    _, _, state = model(torch.cat([x[:, 1:past], y[:, :past - 1, None]], 2))
    last, made = y[:, past - 1], []
    for i in range(past, past + future):
        mean, _, state = model(torch.cat([x[:, i:i + 1], last[:, None, None]], 2), state)
        last = mean[:, 0]
        made.append(last)
    return torch.stack(made, 1)


def train(parts: Parts, record) -> float:
    model = parts.model
    with record.on(model, parts.optimizer):
        for _ in range(6):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(model, batch)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), .1)
                parts.optimizer.step()
                record.step(loss)
    x, y = parts.valid[0]
    with torch.no_grad(): wrong = nn.functional.mse_loss(foretell(model, x, y), y[:, past:])
    return (wrong/y[:, past:].var()).item()
