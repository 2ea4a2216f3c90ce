"""An attention over the patches of a picture fills the places of padding with minus infinity after its softmax.

The report, on the code of a vision transformer: the mask has to be applied before the softmax. It was merged; the
maintainer wondered how it had come about."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "huggingface/pytorch-image-models#2236", 2024
AREA, CAUSE = "structure", "NaN or Inf"
TRUE = {"mask ignored", "loss does not fall"}
PLACE = ("blocks.0.attention", "blocks.1.attention")

patches, patch, classes = 16, 12, 4


class Attention(nn.Module):
    def __init__(self, size: int, heads: int, repaired: bool):
        super().__init__()
        self.heads, self.repaired = heads, repaired
        self.qkv, self.out = nn.Linear(size, 3*size), nn.Linear(size, size)

    def forward(self, x, there):
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        weights, absent = q @ k.mT/q.shape[-1]**.5, ~there[:, None, None]
        if self.repaired: weights = weights.masked_fill(absent, -torch.inf)
        weights = weights.softmax(-1)
        if not self.repaired: weights = weights.masked_fill(absent, -torch.inf)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.attention = Attention(size, 4, repaired)
        self.wide = nn.Sequential(nn.Linear(size, 2*size), nn.GELU(), nn.Linear(2*size, size))
        self.norms = nn.ModuleList([nn.LayerNorm(size) for _ in range(2)])

    def forward(self, x, there):
        x = x + self.attention(self.norms[0](x), there)
        return x + self.wide(self.norms[1](x))


class Patches(nn.Module):
    "Pictures of many sizes: as many patches as there are, the rest is padding."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.embed, self.place = nn.Linear(patch, size), nn.Parameter(.02*torch.randn(patches, size))
        self.blocks = nn.ModuleList([Block(size, repaired) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(size), nn.Linear(size, classes)

    def forward(self, x, there):
        x = self.embed(x) + self.place
        for block in self.blocks: x = block(x, there)
        kept = there[..., None].float()
        return self.head(((self.norm(x)*kept).sum(1))/kept.sum(1))


def pictures(n: int, kinds):
    "Patches of noise, two of which are of the picture's class."
    kind = torch.randint(classes, (n,))
    x = torch.randn(n, patches, patch)
    x[:, 1], x[:, 3] = x[:, 1] + kinds[kind], x[:, 3] + kinds[kind]
    there = torch.arange(patches) < torch.randint(6, patches + 1, (n, 1))
    return x*there[..., None], there, kind


def build(repaired: bool) -> Parts:
    kinds = torch.randn(classes, patch)
    model = Patches(32, repaired)
    data = [pictures(64, kinds) for _ in range(40)]
    def call(model, batch): return F.cross_entropy(model(*batch[:2]), batch[2])
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=2e-3), data, call=call, valid=[pictures(400, kinds)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(2):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad(): return (parts.call(parts.model, parts.valid[0])/torch.tensor(float(classes)).log()).item()
