"""The learning rate that is asked for is overruled by that of a file of settings, which is a thousandth of it.

The report: a diffusion model is tuned for a night and the results are terrible; the rate was always 1e-6, whatever was
asked for. The maintainer changed the order, so that the rate asked for wins."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "victorchall/EveryDream2trainer#102", 2023
AREA, CAUSE = "optimizer and schedule", "learning rate too small"
TRUE = {"loss does not fall"}
PLACE = ()
SETTINGS = {"lr": 1e-6, "betas": (.9, .999), "weight_decay": .01}


class Denoiser(nn.Module):
    "Says which noise was added, given how much."
    def __init__(self):
        super().__init__()
        self.much = nn.Linear(1, 96)
        self.first, self.second, self.last = nn.Linear(16, 96), nn.Linear(96, 96), nn.Linear(96, 16)

    def forward(self, x, much):
        return self.last(F.silu(self.second(F.silu(self.first(x) + self.much(much)))))


def curves(n: int):
    "Waves of one period with any phase and height."
    phase, height = 6.28*torch.rand(n, 1), .5 + torch.rand(n, 1)
    return height*(phase + torch.linspace(0, 6.28, 16)).sin()


def noised(x):
    much, noise = torch.rand(len(x), 1), torch.randn_like(x)
    return much.sqrt()*noise + (1 - much).sqrt()*x, much, noise


def error(model, batch):
    x, much, noise = noised(batch)
    return F.mse_loss(model(x, much), noise)


def build(repaired: bool) -> Parts:
    model, asked = Denoiser(), {"lr": 1e-3}
    settings = {**SETTINGS, **asked} if repaired else {**asked, **SETTINGS}
    optimizer = torch.optim.AdamW(model.parameters(), **settings)
    return Parts(model, optimizer, list(curves(2048).split(64)), call=error, valid=[curves(2048)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(15):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                parts.optimizer.zero_grad(set_to_none=True)
                record.step(loss)
    with torch.no_grad(): return parts.call(parts.model, parts.valid[0]).item()
