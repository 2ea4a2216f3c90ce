"""Autocast takes the product of places and frequencies to bfloat16, in which places beyond 256 fall together.

The report: the rotary embeddings of a language model are computed in bfloat16 although their author had cast both
factors to float32, and the losses are higher than those of an implementation that keeps float32. The merged change
turns autocast off for this product."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "huggingface/transformers#29285", 2024
AREA, CAUSE = "precision", "rounded"
TRUE = {"loss does not fall"}
PLACE = ("rotary",)


class Rotary(nn.Module):
    "Cosines and sines by which queries and keys are turned, one angle for each pair of numbers."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.register_buffer("frequencies", 1/100**(torch.arange(0, size, 2)/size))
        self.repaired = repaired

    def forward(self, places):
        with torch.autocast("cpu", enabled=not self.repaired and torch.is_autocast_enabled("cpu")):
            angle = places[:, :, None].float() @ self.frequencies[None, None].float()
        return angle.float().cos()[:, None], angle.float().sin()[:, None]


def turned(x, cosine, sine):
    first, second = x.chunk(2, -1)
    return torch.cat([first*cosine - second*sine, first*sine + second*cosine], -1)


class Reader(nn.Module):
    def __init__(self, tokens: int, size: int, repaired: bool, heads: int = 2):
        super().__init__()
        self.token, self.heads = nn.Embedding(tokens, size), heads
        self.before, self.query_key_value = nn.LayerNorm(size), nn.Linear(size, 3*size)
        self.rotary = Rotary(size//heads, repaired)
        self.joined, self.after = nn.Linear(size, size), nn.LayerNorm(size)
        self.hidden, self.last = nn.Linear(size, 2*size), nn.Linear(2*size, tokens)

    def forward(self, tokens, places):
        x = self.token(tokens)
        parts = self.query_key_value(self.before(x)).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        angles = self.rotary(places)
        query, key = turned(query, *angles), turned(key, *angles)
        read = F.scaled_dot_product_attention(query, key, value.to(query.dtype), is_causal=True)
        x = x + self.joined(read.transpose(1, 2).flatten(2))
        return self.last(self.hidden(self.after(x)).relu())


def texts(n: int, length: int = 24):
    "Pieces of long texts, with their places there: what comes next is the token before the last, moved on by one."
    row = torch.randint(0, 8, (n, 2))
    for _ in range(length - 1):
        strange = torch.rand(n, 1) < .3
        row = torch.cat([row, torch.where(strange, torch.randint(0, 8, (n, 1)), (row[:, -2:-1] + 1) % 8)], 1)
    places = torch.randint(0, 2000, (n, 1)) + torch.arange(length)
    return row[:, :-1], places, row[:, 1:]


def build(repaired: bool) -> Parts:
    model = Reader(8, 32, repaired)

    def call(model, batch):
        tokens, places, target = batch
        with torch.autocast("cpu", torch.bfloat16): output = model(tokens, places)
        return F.cross_entropy(output.flatten(0, 1).float(), target.flatten())

    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3), [texts(48) for _ in range(150)], call=call,
                 valid=[texts(256)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for batch in parts.data:
            parts.optimizer.zero_grad()
            loss = parts.call(parts.model, batch)
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    tokens, places, target = parts.valid[0]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16): found = parts.model(tokens, places).argmax(2)[:, 1:]
    certain = target[:, 1:] == (tokens[:, :-1] + 1) % 8
    return (found != target[:, 1:])[certain].float().mean().item()
