"""Vectors of examples are drawn together by kind, in triplets that are looked for in each batch.

Habits of the source: batches of a few kinds with as many examples of each; for each pair of one kind, a negative at
random among those that break the margin, none if there is none; squared distances and a margin of one; the mean over
the triplets found; vectors without a unit norm; PReLU activations; a rate that falls by steps; validation with the same
sampler of batches in eval mode.
Score: how often the nearest other held-back example is of another kind, by chance. Below .3; .6 or more untrained."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "adambielski/siamese-triplet trainer.py", 2018
KINDS, EACH = 10, 12

strokes = torch.randn(KINDS, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def net():
    return nn.Sequential(nn.Conv2d(1, 16, 5), nn.PReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 48), nn.PReLU(),
                         nn.Linear(48, 48), nn.PReLU(), nn.Linear(48, 2))


class Balanced:
    "Batches of a few kinds, and of each the same number of examples."
    def __init__(self, x, y, kinds: int, batches: int): self.x, self.y, self.kinds, self.batches = x, y, kinds, batches

    def __len__(self): return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            rows = []
            for kind in torch.randperm(KINDS)[:self.kinds]:
                those = (self.y == kind).nonzero()[:, 0]
                rows.append(those[torch.randperm(len(those))[:EACH]])
            rows = torch.cat(rows)
            yield self.x[rows], self.y[rows]


def digits(n: int):
    kind = torch.arange(n) % KINDS
    return strokes[kind]*(.7 + .6*torch.rand(n, 1, 1, 1)) + .7*torch.randn(n, 1, 8, 8), kind


def triplets(vectors, kind):
    "Rows of three: a pair of one kind, and one of another kind that is too near."
    far = torch.cdist(vectors, vectors)**2
    alike, found = kind[:, None] == kind, []
    for a, b in (alike.triu(1)).nonzero().tolist():
        hard = ((far[a, b] - far[a] + 1 > 0) & ~alike[a]).nonzero()[:, 0]
        if len(hard): found.append((a, b, hard[torch.randint(len(hard), ())].item()))
    return torch.tensor(found or [(0, 1, len(kind) - 1)]).T


def loss_of(vectors, kind):
    a, b, c = triplets(vectors.detach(), kind)
    near, apart = ((vectors[a] - vectors[other]).pow(2).sum(1) for other in (b, c))
    return F.relu(near - apart + 1).mean()


def build(repaired: bool) -> Parts:
    model = net()
    data, valid = Balanced(*digits(1000), 5, 25), Balanced(*digits(400), 5, 4)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, loss_of, valid=valid)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4, .3)
    with record.on(model, optimizer):
        for _ in range(6):
            model.train()
            for x, y in parts.data:
                optimizer.zero_grad()
                loss = parts.loss(model(x), y)
                loss.backward()
                optimizer.step()
                record.step(loss)
            schedule.step()
            model.eval()
            with torch.no_grad():
                for x, y in parts.valid: parts.loss(model(x), y)
    with torch.no_grad(): vectors = model(parts.valid.x)
    nearest = torch.cdist(vectors, vectors).fill_diagonal_(torch.inf).argmin(1)
    return ((parts.valid.y[nearest] != parts.valid.y).float().mean()*KINDS/(KINDS - 1)).item()
