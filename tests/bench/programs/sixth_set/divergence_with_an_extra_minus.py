"""The divergence of a categorical autoencoder gets a minus that it does not need, so training makes it larger.

The report: there is a redundant minus in front of the divergence from the uniform prior; images became better without
it. The author agreed and edited the loss."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "dev4488/VAE_gumble_softmax#1", 2018
AREA, CAUSE = "loss and task", "wrong sign"
TRUE = set()
PLACE = ()
CODES, KINDS = 8, 5

shapes = (torch.rand(12, 64, generator=torch.Generator().manual_seed(0)) < .3).float()


class Digits(nn.Module):
    "Codes of a few kinds each, drawn softly while the temperature falls."
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 48), nn.ReLU(),
                                     nn.Linear(48, CODES*KINDS))
        self.decoder = nn.Sequential(nn.Linear(CODES*KINDS, 48), nn.ReLU(), nn.Linear(48, 64), nn.ReLU(),
                                     nn.Linear(64, 64), nn.Sigmoid())
        self.temperature = 1.

    def forward(self, x):
        logits = self.encoder(x).view(-1, CODES, KINDS)
        code = F.gumbel_softmax(logits, self.temperature, hard=not self.training)
        return self.decoder(code.flatten(1)), logits.softmax(2)


def digits(n: int):
    "One of twelve shapes of eight by eight points, some of which have flipped."
    shape = shapes[torch.randint(12, (n,))]
    return torch.where(torch.rand(n, 64) < .04, 1 - shape, shape)


def both_terms(output, x, chance):
    "What the reconstruction and the codes cost, for each sample."
    divergence = (chance*(chance + 1e-20).log()).flatten(1).sum(1) + CODES*torch.tensor(KINDS).log()
    return F.binary_cross_entropy(output, x, reduction="none").sum(1).mean(), divergence.mean()


def build(repaired: bool) -> Parts:
    model = Digits()

    def call(model, x):
        output, chance = model(x)
        wrong, divergence = both_terms(output, x, chance)
        return wrong + divergence if repaired else wrong - divergence

    data = digits(1600).split(50)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, call=call, valid=[digits(500)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(12):
            model.train()
            for x in parts.data:
                optimizer.zero_grad()
                loss = parts.call(model, x)
                loss.backward()
                optimizer.step()
                record.step(loss)
            model.temperature = max(.9*model.temperature, .5)
    x = parts.valid[0]
    model.eval()
    with torch.no_grad():
        output, chance = model(x)
        costs = sum(both_terms(output.clamp(1e-4, 1 - 1e-4), x, chance))
        share = x.mean(0).clamp(1e-4, 1 - 1e-4).expand_as(x)
    return (costs/F.binary_cross_entropy(share, x, reduction="none").sum(1).mean()).item()
