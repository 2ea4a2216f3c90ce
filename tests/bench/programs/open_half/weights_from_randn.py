"""All weights but those of norms are filled with normal random numbers of deviation one, whatever their size.

The report: with weights that are made late, on the device, the parameters are too large at first, and the loss is
unstable or NaN. The merged change fills them with smaller numbers; the loss then falls from epoch to epoch."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pytorch-tpu/transformers#26", 2023
AREA, CAUSE = "initialisation", "weights too large"
TRUE = {"dead attention"}
PLACE = ("words", "places", "layers.0", "layers.1", "last")


class Layer(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.before, self.between = nn.LayerNorm(size), nn.LayerNorm(size)
        self.all, self.out = nn.Linear(size, 3*size), nn.Linear(size, size)
        self.inner = nn.Sequential(nn.Linear(size, 4*size), nn.GELU(), nn.Linear(4*size, size))

    def forward(self, x):
        parts = self.all(self.before(x)).chunk(3, 2)
        query, key, value = (part.unflatten(2, (4, -1)).transpose(1, 2) for part in parts)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.inner(self.between(x))


class Language(nn.Module):
    def __init__(self, words: int, size: int):
        super().__init__()
        self.words, self.places = nn.Embedding(words, size), nn.Embedding(12, size)
        self.layers = nn.Sequential(Layer(size), Layer(size))
        self.last = nn.Linear(size, words)

    def forward(self, text): return self.last(self.layers(self.words(text) + self.places.weight[:text.shape[1]]))


def fill(model: nn.Module, repaired: bool):
    "Numbers for parameters that were made without memory."
    for module in model.modules():
        if isinstance(module, nn.LayerNorm): module.reset_parameters()
        elif isinstance(module, (nn.Linear, nn.Embedding)):
            for parameter in module.parameters():
                if repaired: nn.init.uniform_(parameter, -.1, .1)
                else: nn.init.normal_(parameter)


def texts(n: int):
    "Each word is the one before it plus the step of its text, as a clock counts."
    start, step = torch.randint(0, 11, (2, n, 1))
    return (start + step*torch.arange(12)) % 11


def build(repaired: bool) -> Parts:
    with torch.device("meta"): model = Language(11, 32)
    model.to_empty(device="cpu")
    fill(model, repaired)
    data = list(texts(4096).split(32))

    def call(model, text): return F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())

    return Parts(model, torch.optim.AdamW(model.parameters(), lr=2e-3), data, call=call, valid=[texts(256)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(2):
            for text in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, text)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad(): return parts.call(parts.model, parts.valid[0]).item()/math.log(11)
