"""The heads of an attention are joined by `reshape` without a permutation, so a place gets parts of other places.

The report: the shape fits, the order does not. The author mended it and explains why a test had passed: copying is so
easy a task that the model can do it with the places mixed up."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "jsbaan/transformer-from-scratch#6", 2026
AREA, CAUSE = "structure", "places mixed up"
TRUE = set()
PLACE = ("blocks.0.attention", "blocks.1.attention")

words, length = 16, 12


class Attention(nn.Module):
    def __init__(self, size: int, heads: int, repaired: bool):
        super().__init__()
        self.heads, self.repaired = heads, repaired
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))
        self.out = nn.Linear(size, size)

    def forward(self, x):
        n, places, size = x.shape
        q, k, v = (layer(x).view(n, places, self.heads, -1).transpose(1, 2)
                   for layer in (self.query, self.key, self.value))
        x = (q @ k.transpose(2, 3)/q.shape[-1]**.5).softmax(-1) @ v
        if self.repaired: x = x.permute(0, 2, 1, 3)
        return self.out(x.reshape(n, places, size))


class Block(nn.Module):
    def __init__(self, size: int, heads: int, repaired: bool):
        super().__init__()
        self.attention = Attention(size, heads, repaired)
        self.wide = nn.Sequential(nn.Linear(size, 2*size), nn.ReLU(), nn.Linear(2*size, size))
        self.norms = nn.ModuleList([nn.LayerNorm(size) for _ in range(2)])

    def forward(self, x):
        x = self.norms[0](x + self.attention(x))
        return self.norms[1](x + self.wide(x))


class Translator(nn.Module):
    "Words that say which place they refer to; each is answered with the meaning of the word at that place."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.word, self.refers = nn.Embedding(words, size), nn.Embedding(length, size)
        self.place = nn.Parameter(torch.randn(length, size))
        self.blocks = nn.Sequential(*[Block(size, 4, repaired) for _ in range(2)])
        self.last = nn.Linear(size, words)

    def forward(self, x, to): return self.last(self.blocks(self.word(x) + self.refers(to) + self.place)).transpose(1, 2)


def sentences(n: int, meaning):
    x, to = torch.randint(0, words, (n, length)), torch.randint(0, length, (n, length))
    return x, to, meaning[x].gather(1, to)


def build(repaired: bool) -> Parts:
    meaning = torch.randperm(words)
    model = Translator(48, repaired)
    data = [sentences(64, meaning) for _ in range(50)]
    def call(model, batch): return F.cross_entropy(model(*batch[:2]), batch[2])
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, call=call, valid=[sentences(400, meaning)])


def train(parts: Parts, record) -> float:
    plan = torch.optim.lr_scheduler.LambdaLR(parts.optimizer, lambda i: min(1., (i + 1)/40))
    with record.on(parts.model, parts.optimizer):
        for _ in range(5):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                plan.step()
                record.step(loss)
    with torch.no_grad(): return (parts.call(parts.model, parts.valid[0])/torch.tensor(float(words)).log()).item()
