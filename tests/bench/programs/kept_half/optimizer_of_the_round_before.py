"""In a new round the network is trained from scratch, and the optimizer still has the weights of the last round's one.

The report, by the author: the optimizer has to be made anew too; otherwise it points to the wrong network, and nothing
is trained."""
import copy
import math

import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "sbi-dev/sbi#200", 2020
AREA, CAUSE = "parameters", "other parameters in the optimizer"
TRUE = {"loss does not fall", "cannot learn by heart", "not in the optimizer"}
PLACE = ("layers",)


class Posterior(nn.Module):
    "A normal distribution of the causes of what was seen."
    def __init__(self, size: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, size), nn.Tanh(), nn.Linear(size, size), nn.Tanh(), nn.Linear(size, 4))

    def forward(self, seen, causes):
        "How unlikely the causes are."
        mean, log_width = self.layers(seen).chunk(2, 1)
        return (.5*((causes - mean)/log_width.exp())**2 + log_width).sum(1).mean() + math.log(2*math.pi)


def simulated(causes):
    "A wave with noise; the causes are its pitch and how strong it is."
    pitch, strength = causes.unbind(1)
    time = torch.arange(1, 6)/5.
    wave = (1.5 + strength[:, None]/2)*((1 + .3*pitch[:, None])*2*time).sin()
    return wave + .1*torch.randn(wave.shape), causes


def rounds(posterior, optimizer, batches, heard):
    for seen, causes in batches:
        optimizer.zero_grad()
        loss = posterior(seen, causes)
        loss.backward()
        nn.utils.clip_grad_norm_(posterior.parameters(), 5.)
        optimizer.step()
        heard(loss)


def build(repaired: bool) -> Parts:
    untrained = Posterior(32)
    posterior = copy.deepcopy(untrained)
    optimizer = torch.optim.Adam(posterior.parameters(), lr=5e-3)
    rounds(posterior, optimizer, [simulated(torch.randn(50, 2)) for _ in range(100)], lambda _: None)
    posterior = copy.deepcopy(untrained)
    if repaired: optimizer = torch.optim.Adam(posterior.parameters(), lr=5e-3)
    data = [simulated(torch.randn(50, 2)*.7 + .5) for _ in range(60)]
    def call(model, batch): return model(*batch)
    return Parts(posterior, optimizer, data, call=call, valid=[simulated(torch.randn(500, 2)*.7 + .5)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6): rounds(parts.model, parts.optimizer, parts.data, record.step)
    seen, causes = parts.valid[0]
    with torch.no_grad(): mean = parts.model.layers(seen)[:, :2]
    return ((mean - causes).pow(2).mean()/causes.var(0).mean()).item()
