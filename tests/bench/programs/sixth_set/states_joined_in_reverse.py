"""Each new state of a GRU for series with gaps goes in front of the others, so the last is that of the first step.

The report: the hidden states are appended to the left, which reverses their order in time. The model forecasts from
the one at the end. The author thanked and mended it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "zhiyongc/GRU-D#5", 2019
AREA, CAUSE = "structure", "places mixed up"
TRUE = {"state is lost"}
PLACE = ("gru",)

roads, steps = 4, 10


class GapGRU(nn.Module):
    "A GRU whose state and missing inputs fade to zero and to a mean, the more the longer nothing was observed."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.size, self.repaired = size, repaired
        self.fade_x = nn.Parameter(torch.full((roads,), .3))
        self.fade_h = nn.Linear(roads, size)
        self.z, self.r, self.h = (nn.Linear(2*roads + size, size) for _ in range(3))

    def forward(self, x, seen, last, since):
        h, outs = torch.zeros(len(x), self.size), None
        for i in range(steps):
            keep_x, keep_h = (-F.relu(self.fade_x*since[:, i])).exp(), (-F.relu(self.fade_h(since[:, i]))).exp()
            now, mask = torch.where(seen[:, i] > 0, x[:, i], keep_x*last[:, i]), seen[:, i]
            h = keep_h*h
            both = torch.cat([now, h, mask], 1)
            z, r = self.z(both).sigmoid(), self.r(both).sigmoid()
            h = (1 - z)*h + z*self.h(torch.cat([now, r*h, mask], 1)).tanh()
            if outs is None: outs = h[:, None]
            else: outs = torch.cat([outs, h[:, None]] if self.repaired else [h[:, None], outs], 1)
        return outs[:, -1]


class Forecast(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.gru = GapGRU(size, repaired)
        self.last = nn.Linear(size, roads)

    def forward(self, *series): return self.last(self.gru(*series))


def speeds(n: int):
    "Speeds on roads that drift and swing; a third is not observed. The target is the next one."
    phase, rate = torch.rand(n, 1, roads)*6.28, .4 + .5*torch.rand(n, 1, 1)
    at = torch.arange(steps + 1.)[:, None]
    x = (rate*at + phase).sin() + .15*torch.randn(n, steps + 1, roads).cumsum(1)
    seen = (torch.rand(n, steps, roads) < .67).float()
    last, since = torch.zeros(n, steps, roads), torch.zeros(n, steps, roads)
    for i in range(1, steps):
        last[:, i] = torch.where(seen[:, i - 1] > 0, x[:, i - 1], last[:, i - 1])
        since[:, i] = 1 + since[:, i - 1]*(1 - seen[:, i - 1])
    return (x[:, :-1]*seen, seen, last, since), x[:, -1]


def build(repaired: bool) -> Parts:
    model = Forecast(32, repaired)
    data = [speeds(64) for _ in range(30)]
    def call(model, batch): return F.mse_loss(model(*batch[0]), batch[1])
    return Parts(model, torch.optim.RMSprop(model.parameters(), lr=3e-3), data, call=call, valid=[speeds(400)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(5):
            for batch in parts.data:
                parts.model.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad(): return (parts.call(parts.model, parts.valid[0])/parts.valid[0][1].var()).item()
