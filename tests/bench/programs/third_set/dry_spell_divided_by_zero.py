"""Weather fields are divided by their standard deviation, which is zero for rain in a dry period.

The report: where a field is the same all over the training period, scaling it gives NaN, and so are all predictions. A
merged change leaves such a field at zero."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "mllam/neural-lam#189", 2026
AREA, CAUSE = "precision", "NaN or Inf"
TRUE = {"not trained"}
PLACE = ("inside",)


class Forecast(nn.Module):
    "The change of four fields at twelve places in a ring, from the last two states and what drives them."
    def __init__(self, size: int):
        super().__init__()
        self.inside, self.messages = nn.Linear(11, size), nn.ModuleList([nn.Linear(3*size, size) for _ in range(2)])
        self.last = nn.Linear(size, 4)

    def forward(self, before, now, forcing):
        x = self.inside(torch.cat([before, now, forcing], 2))
        for layer in self.messages:
            x = x + layer(torch.cat([x.roll(1, 1), x, x.roll(-1, 1)], 2)).relu()
        return now + self.last(x)


def weather(steps: int):
    "Waves that run round the ring, some wind that moves them, and rain that never falls."
    time, place = torch.arange(float(steps))[:, None, None], torch.arange(12.)[:, None]
    state = torch.sin(.5*place - .3*time*torch.tensor([1., .5, -1, 2]) + torch.arange(4))
    state = state + .05*torch.randn(steps, 12, 4)
    forcing = torch.cat([torch.sin(.3*time).expand(-1, 12, 1), torch.randn(steps, 12, 1), torch.zeros(steps, 12, 1)], 2)
    return 280 + 5*state, 40 + 10*forcing*torch.tensor([1., 1., 0.]) - torch.tensor([0., 0., 40.])


def scaled(x, mean, std, repaired: bool):
    x = (x - mean)/std
    return torch.where(std > 0, x, 0.) if repaired else x


def build(repaired: bool) -> Parts:
    model = Forecast(32)
    state, forcing = weather(700)
    state, forcing = (scaled(x, x[:600].mean((0, 1)), x[:600].std((0, 1)), repaired) for x in (state, forcing))
    moments = torch.randperm(598)
    data = [(state[t], state[t + 1], forcing[t + 1], state[t + 2]) for t in moments.split(16)]
    held = torch.arange(600, 698)
    valid = [(state[held], state[held + 1], forcing[held + 1], state[held + 2])]

    def call(model, batch): return F.mse_loss(model(*batch[:3]), batch[3])

    return Parts(model, torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(.9, .95)), data, call=call, valid=valid)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(5):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    _, now, _, ahead = batch = parts.valid[0]
    with torch.no_grad(): return (parts.call(parts.model, batch)/F.mse_loss(now, ahead)).item()
