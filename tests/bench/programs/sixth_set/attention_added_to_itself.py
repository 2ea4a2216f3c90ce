"""A block of a language model adds the output of its attention to itself, where it should be added to the input.

The report: the result of the attention takes the name of the input, and then it is doubled, which is no residual
connection. The author mended it at once."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "kyegomez/BitNet#32", 2024
AREA, CAUSE = "structure", "input unused"
TRUE = set()
PLACE = ("attentions.0", "attentions.1", "attentions.2", "attentions.3")

signs, length = 8, 16
rule = torch.randint(signs, (signs, signs), generator=torch.Generator().manual_seed(5))


class Attention(nn.Module):
    def __init__(self, size: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv, self.norm, self.out = nn.Linear(size, 3*size), nn.LayerNorm(size), nn.Linear(size, size)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return self.out(self.norm(y))


class Language(nn.Module):
    def __init__(self, size: int, layers: int, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.embed, self.place = nn.Embedding(signs, size), nn.Embedding(length, size)
        self.attentions = nn.ModuleList([Attention(size, 4) for _ in range(layers)])
        self.feeds = nn.ModuleList([nn.Sequential(nn.LayerNorm(size), nn.Linear(size, 2*size), nn.GELU(),
                                                  nn.Linear(2*size, size)) for _ in range(layers)])
        self.head = nn.Sequential(nn.LayerNorm(size), nn.Linear(size, signs))

    def forward(self, x):
        x = self.embed(x) + self.place.weight[:x.shape[1]]
        for attention, feed in zip(self.attentions, self.feeds):
            seen = attention(x)
            x = seen + x if self.repaired else seen + seen
            x = feed(x) + x
        return self.head(x)


def texts(n: int):
    "A sign follows by a rule from the one before it and the one three places ago, or is any, one in ten."
    found = [torch.randint(signs, (n,)) for _ in range(3)]
    while len(found) < length + 1:
        found.append(torch.where(torch.rand(n) < .1, torch.randint(signs, (n,)), rule[found[-1], found[-3]]))
    return torch.stack(found, 1)


def build(repaired: bool) -> Parts:
    model = Language(32, 4, repaired)
    def call(model, text): return F.cross_entropy(model(text[:, :-1]).mT, text[:, 1:])
    data = [texts(32) for _ in range(50)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, call=call, valid=[texts(400)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            for text in parts.data:
                loss = parts.call(parts.model, text)
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), .5)
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    with torch.no_grad(): return (parts.call(parts.model, parts.valid[0])/torch.tensor(float(signs)).log()).item()
