"""The reconstruction of a VAE for molecules is averaged over all places, most of which are padding.

The report: most of the loss is spent on predicting the padding. The merged change leaves these places out."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "DaoyuanLi2816/Molecule-Generator#20", 2026
AREA, CAUSE = "loss and task", "padding counts"
TRUE = {"constant output"}
PLACE = ()

scaffolds = torch.randint(1, 9, (40, 7), generator=torch.Generator().manual_seed(0))


class Molecules(nn.Module):
    "A GRU makes a code of eight tokens at thirty places; a network makes all tokens of the code."
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, 16)
        self.encoder = nn.GRU(16, 48, batch_first=True)
        self.code = nn.Linear(48, 24)
        self.decoder = nn.Sequential(nn.Linear(12, 96), nn.ReLU(), nn.Linear(96, 30*9))

    def forward(self, tokens):
        lengths = (tokens > 0).sum(1)
        states = self.encoder(self.embed(tokens[:, :8]))[0]
        mean, log_var = self.code(states[torch.arange(len(tokens)), lengths - 1]).chunk(2, 1)
        code = mean + torch.randn_like(mean)*(log_var/2).exp() if self.training else mean
        return self.decoder(code).view(-1, 30, 9).mT, mean, log_var


def molecules(n: int):
    "Four to seven tokens, mostly those of one of forty scaffolds; the other places are zero."
    tokens = scaffolds[torch.randint(40, (n,))]
    tokens = torch.where(torch.rand(n, 7) < .05, torch.randint(1, 9, (n, 7)), tokens)
    return F.pad(tokens*(torch.arange(7) < torch.randint(4, 8, (n, 1))), (0, 23))


def build(repaired: bool) -> Parts:
    model = Molecules()

    def call(model, tokens):
        logits, mean, log_var = model(tokens)
        kl = -.5*(1 + log_var - mean**2 - log_var.exp()).sum(1).mean()
        wrong = F.cross_entropy(logits, tokens, ignore_index=0) if repaired else F.cross_entropy(logits, tokens)
        return wrong + .1*kl

    data = [molecules(64) for _ in range(30)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, call=call, valid=[molecules(512)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(12):
            for tokens in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, tokens)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    tokens = parts.valid[0]
    with torch.no_grad(): logits = parts.model.eval()(tokens)[0]
    return (F.cross_entropy(logits[:, 1:], tokens - 1, ignore_index=-1)/torch.tensor(8.).log()).item()
