"""Anchors are repeated in another order than their pairs, so that most anchors stand beside the pairs of others.

The report: the pretraining of a library for tables stacks all positive pairs and then all negative ones, and repeats
each anchor for both kinds before the next anchor comes. The author counted that 12 of 16 pairs belong to another
anchor; the merged change repeats the anchors block by block, with a test that fails without it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "OpenTabular/DeepTab#414", 2026
AREA, CAUSE = "data and labels", "labels do not belong to inputs"
TRUE = set()
PLACE = ()
NEIGHBOURS = 3


class Encoder(nn.Module):
    "The embedding of a row."
    def __init__(self, size: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(24, size), nn.ReLU(), nn.Linear(size, size), nn.ReLU(),
                                    nn.Linear(size, 16))

    def forward(self, x): return self.layers(x)


def rows(n: int, centres):
    "Rows of five kinds; the kind shows in the first columns, and the others are louder."
    kind = torch.randint(0, 5, (n,))
    return torch.cat([centres[kind] + .5*torch.randn(n, 8), 2*torch.randn(n, 16)], 1), kind


def neighbours(kind, same: bool):
    "For each row some rows of the batch that are of its kind, or that are not."
    fits = (kind[:, None] == kind) == same
    fits.fill_diagonal_(same)
    return torch.multinomial(fits.float(), NEIGHBOURS, replacement=True)


def build(repaired: bool) -> Parts:
    model = Encoder(48)
    centres = torch.randn(5, 8)
    x, kind = rows(1024, centres)
    data = [(some, neighbours(k, True), neighbours(k, False)) for some, k in zip(x.split(64), kind.split(64))]

    def call(model, batch):
        x, positive, negative = batch
        embedded = model(x)
        pairs = torch.cat([embedded[positive.flatten()], embedded[negative.flatten()]])
        if repaired: anchors = embedded.repeat_interleave(NEIGHBOURS, 0).repeat(2, 1)
        else: anchors = embedded.repeat_interleave(2*NEIGHBOURS, 0)
        label = torch.ones(len(pairs))
        label[positive.numel():] = -1
        return F.cosine_embedding_loss(anchors, pairs, label)

    valid = [(some, neighbours(k, True), neighbours(k, False)) for some, k in [rows(256, centres)]]
    parts = Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, call=call, valid=valid)
    parts.known, parts.new = (x, kind), rows(512, centres)
    return parts


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(12):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    (x, kind), (new, wanted) = parts.known, parts.new
    with torch.no_grad(): x, new = F.normalize(parts.model(x)), F.normalize(parts.model(new))
    nearest = (new @ x.T).topk(9, 1).indices
    return (kind[nearest].mode(1).values != wanted).float().mean().item()
