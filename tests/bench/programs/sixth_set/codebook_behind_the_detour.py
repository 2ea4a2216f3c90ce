"""The loss for the codebook of a quantiser gets the codes behind the straight-through step, where they are detached.

The report, on latent actions: the looked-up code is in `x + (z - x).detach()` only, so no gradient reaches the codebook
and it stays as at the start, though the reconstruction improves. The reporter ran some steps of both and compared."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "showlab/Olaf-World#8", 2026
AREA, CAUSE = "parameters", "detached part"
TRUE = {"not trained", "loss without gradient", "term without gradient"}
PLACE = ("quantise.codebook",)

numbers, actions, codes = 10, 6, 12


class Quantiser(nn.Module):
    "The nearest code, with the gradient of what it stands for."
    def __init__(self, size: int):
        super().__init__()
        self.codebook = nn.Embedding(codes, size)
        nn.init.uniform_(self.codebook.weight, -1/codes, 1/codes)

    def forward(self, x):
        z = self.codebook(torch.cdist(x, self.codebook.weight).argmin(1))
        return x + (z - x).detach(), z


class LatentActions(nn.Module):
    "What happened between two frames, as a code; the next frame, from the first one and the code."
    def __init__(self, size: int, code: int):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(2*numbers, size), nn.GELU(), nn.Linear(size, code))
        self.quantise = Quantiser(code)
        self.decoder = nn.Sequential(nn.Linear(numbers + code, size), nn.GELU(), nn.Linear(size, numbers))

    def forward(self, before, after):
        x = self.encoder(torch.cat([before, after], 1))
        through, z = self.quantise(x)
        return self.decoder(torch.cat([before, through], 1)), x, through, z


def frames(n: int, moves):
    "Each action turns the frame in its own way."
    action, before = torch.randint(actions, (n,)), torch.randn(n, numbers)
    after = torch.einsum("nij,nj->ni", moves[action], before) + .05*torch.randn(n, numbers)
    return before, after


def build(repaired: bool) -> Parts:
    moves = torch.stack([torch.linalg.qr(torch.randn(numbers, numbers))[0] for _ in range(actions)])
    model = LatentActions(96, 8)

    def call(model, batch):
        guess, x, through, z = model(*batch)
        codebook = F.mse_loss(z if repaired else through, x.detach())
        return F.mse_loss(guess, batch[1]) + codebook + .25*F.mse_loss(x, z.detach())

    data = [frames(128, moves) for _ in range(40)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=2e-3), data, call=call, valid=[frames(1000, moves)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(15):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    before, after = parts.valid[0]
    with torch.no_grad(): return (F.mse_loss(parts.model(before, after)[0], after)/after.var()).item()
