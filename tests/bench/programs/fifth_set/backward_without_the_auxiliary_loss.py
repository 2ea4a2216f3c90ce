"""A sparse autoencoder adds up two losses, and returns the first of them to the loop that calls backward.

The report: the sum of the reconstruction loss and of the one that is to revive dead latents is made, and the function
returns the reconstruction loss, so the other is logged and does nothing. The author found it while training on a copy
of the code, and returns the sum there; the change is proposed, with an open answer."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "oclivegriffin/crosscode#3", 2026
AREA, CAUSE = "loop", "other loss"
TRUE = {"dead units"}
PLACE = ()

wide, latents, most, revived, dead_after = 64, 96, 4, 16, 8


class Crosscoder(nn.Module):
    "Keeps the four largest latents of each sample, and writes the sample from them."
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(wide, latents), nn.Linear(latents, wide)
        self.decoder.weight.data = self.decoder.weight.data/self.decoder.weight.data.norm(dim=0)
        self.encoder.weight.data = self.decoder.weight.data.T.clone()
        self.register_buffer("silent", torch.zeros(latents))     # for how many batches

    def forward(self, x):
        before = self.encoder(x).relu()
        top = before.topk(most, 1)
        kept = torch.zeros_like(before).scatter(1, top.indices, top.values)
        return self.decoder(kept), kept, before


def both_losses(model, x):
    "Of the reconstruction, and of what dead latents can say about the rest."
    said, kept, _ = model(x)
    if model.training: model.silent = torch.where((kept > 0).any(0), 0., model.silent + 1)
    first = (said - x).square().sum(1).mean()
    dead = model.silent >= dead_after
    if not dead.any(): return first, torch.zeros(())
    free = model.encoder(x).masked_fill(~dead, float("-inf")).topk(min(revived, int(dead.sum())), 1)
    codes = torch.zeros_like(kept).scatter(1, free.indices, free.values.relu() + .01*free.values)
    return first, (codes @ model.decoder.weight.T - (x - said).detach()).square().sum(1).mean()


def activations(n: int, directions):
    "Sums of four of eighty directions, far from zero as those of a language model are."
    chosen = torch.multinomial(torch.ones(n, 80), 4)
    return 1 + (directions[chosen]*(1 + torch.rand(n, 4, 1))).sum(1)


def build(repaired: bool) -> Parts:
    directions = nn.functional.normalize(torch.randn(80, wide), dim=1)
    model = Crosscoder()
    data = [activations(64, directions) for _ in range(80)]

    def loss_of_step(model, x):
        first, second = both_losses(model, x)
        total = first + .5*second
        return total if repaired else first

    return Parts(model, torch.optim.Adam(model.parameters(), lr=6e-3), data, call=loss_of_step,
                 valid=[activations(2048, directions)])


def train(parts: Parts, record) -> float:
    model = parts.model
    with record.on(model, parts.optimizer):
        for _ in range(8):
            model.train()
            for x in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(model, x)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.)
                parts.optimizer.step()
                record.step(loss)
    model.eval()
    x = parts.valid[0]
    with torch.no_grad(): return ((model(x)[0] - x).square().sum()/(x - x.mean(0)).square().sum()).item()
