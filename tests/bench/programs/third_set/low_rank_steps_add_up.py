"""The gradients are not cleared after a step while a language model is tuned by low-rank factors.

The report: the trainer for low-rank tuning of a language model steps and does not call `zero_grad`, which a colleague
noticed. The change that adds it was merged."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "tenstorrent/tt-blacksmith#711", 2026
AREA, CAUSE = "loop", "gradients not cleared"
TRUE = {"loss rises", "learning rate too large", "gradients explode", "loss does not fall", "outputs blow up"}
PLACE = ()
TOKENS, LENGTH = 16, 12


class LowRank(nn.Module):
    "A linear layer that stays as it is, and two factors that are added to it."
    def __init__(self, layer: nn.Linear, rank: int):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, layer.in_features)/layer.in_features**.5)
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x): return self.layer(x) + 2*(x @ self.down.T @ self.up.T)


class Writer(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.tokens, self.places, self.size = nn.Embedding(TOKENS, size), nn.Embedding(LENGTH, size), size
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))
        self.wide, self.narrow = nn.Linear(size, 4*size), nn.Linear(4*size, size)
        self.norms, self.last = nn.ModuleList(nn.LayerNorm(size) for _ in range(3)), nn.Linear(size, TOKENS)

    def forward(self, x):
        x = self.tokens(x) + self.places.weight[:x.shape[1]]
        y = self.norms[0](x)
        x = x + F.scaled_dot_product_attention(self.query(y), self.key(y), self.value(y), is_causal=True)
        x = x + self.narrow(F.gelu(self.wide(self.norms[1](x))))
        return self.last(self.norms[2](x))


def texts(n: int, likely):
    "What comes next follows from the last token nine times out of ten."
    found = [torch.randint(0, TOKENS, (n,))]
    for _ in range(LENGTH):
        found.append(torch.where(torch.rand(n) < .9, likely[found[-1]], torch.randint(0, TOKENS, (n,))))
    return torch.stack(found, 1)


def next_token(model, x): return F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())


def trained_before(model, likely):
    "The language it knew before."
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        next_token(model, texts(32, likely)).backward()
        optimizer.step()


def build(repaired: bool) -> Parts:
    model, old, new = Writer(32), torch.randperm(TOKENS), torch.randperm(TOKENS)
    trained_before(model, old)
    model.requires_grad_(False)
    for name in "query", "key", "value", "wide", "narrow": setattr(model, name, LowRank(getattr(model, name), 4))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    return Parts(model, optimizer, list(texts(960, new).split(16)), call=next_token, valid=[texts(256, new)],
                 repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    model.train()
    with record.on(model, optimizer):
        for _ in range(3):
            for x in parts.data:
                loss = parts.call(model, x)
                loss.backward()
                optimizer.step()
                if parts.repaired: optimizer.zero_grad()
                record.step(loss)
    with torch.no_grad(): return parts.call(model, parts.valid[0]).item()/math.log(TOKENS)
