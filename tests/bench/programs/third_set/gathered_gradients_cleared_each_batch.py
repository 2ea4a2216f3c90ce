"""Gradients are to be gathered over several batches, but are cleared after each, so only the last one counts.

The report: an autoencoder for diffusion is trained with gathered gradients, and `zero_grad` stands outside the
condition for the step. Its reader says that what was gathered is erased; the author thanks, and the change was
merged."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "gaozhihan/PreDiff#32", 2024
AREA, CAUSE = "loop", "accumulation"
TRUE = set()
PLACE = ()
GATHER = 8


class Encoded(nn.Module):
    "An autoencoder of images with some noise between its halves."
    def __init__(self, size: int, code: int):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, size, 3, 2, 1), nn.SiLU(), nn.Conv2d(size, size, 3, 2, 1), nn.SiLU(),
                                     nn.Conv2d(size, 2*code, 1))
        self.decoder = nn.Sequential(nn.Conv2d(code, size, 3, padding=1), nn.SiLU(),
                                     nn.ConvTranspose2d(size, size, 4, 2, 1), nn.SiLU(),
                                     nn.ConvTranspose2d(size, 1, 4, 2, 1))

    def forward(self, x):
        mean, log_var = self.encoder(x).chunk(2, 1)
        code = mean + (log_var/2).exp()*torch.randn_like(mean)
        return self.decoder(code), mean, log_var


def rain(n: int):
    "Fields of rain: a few smooth spots each."
    row, column = torch.meshgrid(torch.arange(12.), torch.arange(12.), indexing="ij")
    at, wide, strong = 12*torch.rand(n, 3, 2), 1 + 2*torch.rand(n, 3, 1, 1), torch.rand(n, 3, 1, 1)
    away = (row - at[..., :1, None])**2 + (column - at[..., 1:, None])**2
    return 2*(strong*torch.exp(-away/2/wide**2)).sum(1, keepdim=True) - 1


def evidence(model, x):
    made, mean, log_var = model(x)
    apart = .5*(mean**2 + log_var.exp() - 1 - log_var).sum((1, 2, 3)).mean()
    return F.l1_loss(made, x) + 1e-4*apart


def build(repaired: bool) -> Parts:
    model = Encoded(16, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, betas=(.5, .9))
    return Parts(model, optimizer, list(rain(GATHER*200).split(1)), call=evidence, valid=[rain(256)],
                 repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for i, x in enumerate(parts.data, 1):
            loss = parts.call(model, x)/GATHER
            loss.backward()
            if i % GATHER == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.)
                optimizer.step()
                if parts.repaired: optimizer.zero_grad()
            if not parts.repaired: optimizer.zero_grad()
            record.step(loss)
    x = parts.valid[0]
    with torch.no_grad(): return (F.mse_loss(model(x)[0], x)/x.var()).item()
