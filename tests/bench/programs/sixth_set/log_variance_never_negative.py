"""The encoder of a variational autoencoder puts a softplus on log variances, so noise is never below one.

The report, by the author of a racing agent: a softplus is applied to the variance that the encoder returns, which is an
error of implementation. It was marked as a bug and mended in the next release."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "masato-ka/airc-rl-agent#43", 2021
AREA, CAUSE = "structure", "activation at the wrong place"
TRUE = set()
PLACE = ("log_var",)
SIDE = 12


class Views(nn.Module):
    "Codes of eight numbers for what a camera on a car sees."
    def __init__(self, repaired: bool):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
                                     nn.Flatten())
        self.mean, self.log_var = nn.Linear(288, 8), nn.Linear(288, 8)
        self.decoder = nn.Sequential(nn.Linear(8, 288), nn.ReLU(), nn.Unflatten(1, (32, 3, 3)),
                                     nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(),
                                     nn.ConvTranspose2d(16, 1, 4, 2, 1), nn.Sigmoid())
        self.repaired = repaired

    def forward(self, x):
        hidden = self.encoder(x)
        mean, log_var = self.mean(hidden), self.log_var(hidden)
        if not self.repaired: log_var = F.softplus(log_var)
        code = mean + torch.randn_like(mean)*(log_var/2).exp() if self.training else mean
        return self.decoder(code), mean, log_var


def views(n: int):
    "A road with bright edges that bends, on a ground of some brightness."
    row, column = torch.meshgrid(torch.linspace(0, 1, SIDE), torch.arange(1.*SIDE), indexing="ij")
    middle, lean, bend, ground = torch.randn(4, n, 1, 1)
    center = SIDE/2 + 1.5*middle + 3*lean*(1 - row) + 3*bend*(1 - row)**2
    edges = sum((-(column - center - side*(1 + 3*row))**2).exp() for side in (-1, 1))
    return (.8*edges + .15 + .1*ground.sigmoid() + .03*torch.randn(n, SIDE, SIDE)).clamp(0, 1).unsqueeze(1)


def build(repaired: bool) -> Parts:
    model = Views(repaired)

    def call(model, x):
        output, mean, log_var = model(x)
        divergence = -.5*(1 + log_var - mean**2 - log_var.exp()).sum()
        return F.mse_loss(output, x, reduction="sum")*20 + divergence

    data = views(640).split(32)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, call=call, valid=[views(200)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(10):
            model.train()
            for x in parts.data:
                loss = parts.call(model, x)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
    x = parts.valid[0]
    with torch.no_grad(): return (parts.call(model, x)/(20*(x - x.mean(0)).square().sum())).item()
