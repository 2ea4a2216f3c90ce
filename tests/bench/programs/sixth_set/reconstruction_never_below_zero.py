"""A variational autoencoder that looks for odd rows ends in a ReLU, though its columns were standardised.

The report: the last layer of the decoder has the activation of the hidden ones, so nothing below zero can be
reconstructed. The maintainer made the identity the default of the last layer."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "yzhao062/pyod#651", 2025
AREA, CAUSE = "structure", "activation at the wrong place"
TRUE = {"dead units"}
PLACE = ("decoder", "decoder.5")

loadings = torch.randn(4, 20, generator=torch.Generator().manual_seed(0))


class Rows(nn.Module):
    def __init__(self, columns: int, repaired: bool):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(columns, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.mean, self.log_var = nn.Linear(32, 6), nn.Linear(32, 6)
        layers = [nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, columns)]
        self.decoder = nn.Sequential(*layers) if repaired else nn.Sequential(*layers, nn.ReLU())

    def forward(self, x):
        hidden = self.encoder(x)
        mean, log_var = self.mean(hidden), self.log_var(hidden)
        code = mean + torch.randn_like(mean)*(log_var/2).exp() if self.training else mean
        return self.decoder(code), mean, log_var


def rows(n: int): return torch.randn(n, 4) @ loadings + .5*torch.randn(n, 20)


def build(repaired: bool) -> Parts:
    model = Rows(20, repaired)
    x = rows(1024)
    mean, deviation = x.mean(0), x.std(0)

    def call(model, x):
        output, mean, log_var = model(x)
        divergence = -.5*(1 + log_var - mean**2 - log_var.exp()).sum(1).mean()
        return F.mse_loss(output, x, reduction="none").sum(1).mean() + divergence

    valid = [(rows(512) - mean)/deviation]
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-5)
    return Parts(model, optimizer, ((x - mean)/deviation).split(32), call=call, valid=valid)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(15):
            model.train()
            for x in parts.data:
                loss = parts.call(model, x)
                model.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
    x = parts.valid[0]
    model.eval()
    with torch.no_grad(): return (F.mse_loss(model(x)[0], x)/x.var()).item()
