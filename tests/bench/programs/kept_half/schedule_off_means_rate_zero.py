"""Without a schedule the rate is meant to stay; a factor of 0 where 1 is meant ends the training after a few epochs.

The report: if the schedule of a recurrent autoencoder is switched off, its step schedule gets a factor of 0, and the
learning rate is 0 after the first hundred epochs. The maintainers agreed that it is a bug and changed it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "LINCellularNeuroscience/VAME#26", 2021
AREA, CAUSE = "optimizer and schedule", "schedule does not fit"
TRUE = {"learning rate too small", "loss does not fall"}
PLACE = ()


class Motion(nn.Module):
    "A short window becomes a few numbers, and these become the window again."
    def __init__(self):
        super().__init__()
        self.reads, self.writes = nn.GRU(4, 32, batch_first=True), nn.GRU(4, 32, batch_first=True)
        self.middle, self.spread, self.last = nn.Linear(32, 4), nn.Linear(32, 4), nn.Linear(32, 4)

    def forward(self, x):
        state = self.reads(x)[1][0]
        middle, spread = self.middle(state), self.spread(state)
        drawn = middle + torch.randn_like(middle)*(spread/2).exp() if self.training else middle
        return self.last(self.writes(drawn.unsqueeze(1).expand(-1, x.shape[1], -1))[0]), middle, spread


def windows(n: int, limbs):
    "Four limbs that swing at one speed, with any phase and strength."
    phase, strength = 6.28*torch.rand(n, 1, 1), .5 + torch.rand(n, 1, 1)
    return strength*(phase + limbs + torch.arange(10).view(1, -1, 1)*.5).sin() + .05*torch.randn(n, 10, 4)


def both_terms(model, batch):
    again, middle, spread = model(batch)
    distance = (middle**2 + spread.exp() - 1 - spread).mean()
    return F.mse_loss(again, batch) + .005*distance


def build(repaired: bool) -> Parts:
    model, limbs = Motion(), 6.28*torch.rand(1, 1, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, amsgrad=True)
    data = list(windows(512, limbs).split(64))
    return Parts(model, optimizer, data, call=both_terms, valid=[windows(512, limbs)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=1 if parts.repaired else 0)
    with record.on(model, optimizer):
        for _ in range(36):
            for batch in parts.data:
                loss = parts.call(model, batch)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 5.)
                optimizer.step()
                record.step(loss)
            schedule.step()
    x, model = parts.valid[0], model.eval()
    with torch.no_grad(): return (F.mse_loss(model(x)[0], x)/x.var()).item()
