"""The KL term is summed over the whole batch and then counted for each event, so that the code carries nothing.

The report: the sum has no `dim`, its one number is multiplied by the mask of the events, and nothing complains. The
author confirmed the error and repaired it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "EDAPINENUT/GNTPP#4", 2023
AREA, CAUSE = "loss and task", "wrong reduction"
TRUE = {"constant output", "first loss too high"}
PLACE = ()

mixing = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))


class Events(nn.Module):
    "A code for each event, given those before it."
    def __init__(self):
        super().__init__()
        self.history = nn.GRU(6, 24, batch_first=True)
        self.encoder = nn.Sequential(nn.Linear(30, 48), nn.ReLU(), nn.Linear(48, 8))
        self.decoder = nn.Sequential(nn.Linear(28, 48), nn.ReLU(), nn.Linear(48, 6))

    def forward(self, x):
        before = self.history(F.pad(x[:, :-1], (0, 0, 1, 0)))[0]
        mean, log_var = self.encoder(torch.cat([before, x], 2)).chunk(2, 2)
        code = mean + torch.randn_like(mean)*(log_var/2).exp() if self.training else mean
        return self.decoder(torch.cat([before, code], 2)), mean, log_var


def sequences(n: int):
    "Events of six numbers with three causes, and which of the places are events."
    x = (torch.randn(n, 8, 3) @ mixing).tanh() + .1*torch.randn(n, 8, 6)
    return x, (torch.arange(8) < torch.randint(4, 9, (n, 1))).float()


def build(repaired: bool) -> Parts:
    model = Events()

    def call(model, batch):
        x, mask = batch
        output, mean, log_var = model(x)
        wrong = 5*((output - x)**2).sum(2)*mask
        terms = -.5*(1 + log_var - mean**2 - log_var.exp())
        kl = (terms.sum(2) if repaired else terms.sum())*mask
        return (wrong + kl).sum()/mask.sum()

    data = [sequences(32) for _ in range(25)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, call=call, valid=[sequences(512)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(10):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, mask = parts.valid[0]
    with torch.no_grad(): output = parts.model.eval()(x)[0]
    return ((((output - x)**2).sum(2)*mask).sum()/((x**2).sum(2)*mask).sum()).item()
