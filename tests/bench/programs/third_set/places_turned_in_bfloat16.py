"""The angles by which places are turned are computed in bfloat16, where far places cannot be told apart.

The report is the merged change: casting the whole model to bfloat16 also casts the frequencies of the rotary position
embedding, which have to stay in float32."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "okoge-kaz/llm-recipes#6", 2024
AREA, CAUSE = "precision", "rounded"
TRUE = set()
PLACE = ("layers.0.turn",)

length, first = 48, 400  # texts are pieces of long documents, so places are large


class Turn(nn.Module):
    "Sines and cosines of the place times eight frequencies."
    def __init__(self, size: int):
        super().__init__()
        self.register_buffer("frequency", 1/100**(torch.arange(0, size, 2)/size))

    def forward(self, x):
        place = torch.arange(first, first + length).to(self.frequency.dtype)
        angle = place[:, None]*self.frequency
        sine, cosine = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
        one, two = x.chunk(2, -1)
        return torch.cat([one*cosine - two*sine, one*sine + two*cosine], -1)


class Block(nn.Module):
    def __init__(self, size: int, heads: int):
        super().__init__()
        self.heads, self.turn = heads, Turn(size//heads)
        self.norm, self.qkv, self.out = nn.LayerNorm(size), nn.Linear(size, 3*size), nn.Linear(size, size)
        self.mlp = nn.Sequential(nn.LayerNorm(size), nn.Linear(size, 2*size), nn.SiLU(), nn.Linear(2*size, size))

    def forward(self, x):
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, 2))
        mixed = F.scaled_dot_product_attention(self.turn(q), self.turn(k), v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(x)


class Language(nn.Module):
    def __init__(self, words: int, size: int):
        super().__init__()
        self.embed, self.layers = nn.Embedding(words, size), nn.ModuleList([Block(size, 2)])
        self.last = nn.Sequential(nn.LayerNorm(size), nn.Linear(size, words))

    def forward(self, text):
        x = self.embed(text)
        for layer in self.layers: x = layer(x)
        return self.last(x)


def texts(n: int):
    "Each word follows from the one three places before."
    text = torch.randint(12, (n, length))
    for i in range(3, length): text[:, i] = torch.where(torch.rand(n) < .95, (5*text[:, i - 3] + 1) % 12, text[:, i])
    return text


def build(repaired: bool) -> Parts:
    model = Language(12, 32).bfloat16()
    if repaired:
        for layer in model.layers: layer.turn = Turn(16)

    def call(model, text):
        return F.cross_entropy(model(text)[:, :-1].flatten(0, 1).float(), text[:, 1:].flatten())

    data = [texts(16) for _ in range(50)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=4e-3), data, call=call, valid=[texts(64)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            for text in parts.data:
                loss = parts.call(parts.model, text)
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 1.)
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    with torch.no_grad(): return parts.call(parts.model, parts.valid[0]).item()/2.5
