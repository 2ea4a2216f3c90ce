"""A function that initialises all modules gives the scales of the norms small random numbers too, instead of ones.

The report: a language model whose weights are initialised by the library does not converge well in pre-training: the
scale and shift of its norms are right at first, and overwritten by that function. The maintainers mended it."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "huggingface/transformers#143", 2018
AREA, CAUSE = "initialisation", "weights too small"
TRUE = set()
PLACE = ("layers.0.norms.0", "layers.0.norms.1", "layers.1.norms.0", "layers.1.norms.1", "layers.2.norms.0",
         "layers.2.norms.1", "norm")


class Norm(nn.Module):
    "A norm over the last dimension with a scale and a shift of its own."
    def __init__(self, size: int):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def forward(self, x): return F.layer_norm(x, x.shape[-1:], self.gamma, self.beta, 1e-12)


class Layer(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.attention = nn.MultiheadAttention(size, 2, batch_first=True)
        self.inner = nn.Sequential(nn.Linear(size, 2*size), nn.GELU(), nn.Linear(2*size, size))
        self.norms = nn.ModuleList(Norm(size) for _ in range(2))

    def forward(self, x):
        x = self.norms[0](x + self.attention(x, x, x, need_weights=False)[0])
        return self.norms[1](x + self.inner(x))


class Language(nn.Module):
    "Guesses the hidden words of a text."
    def __init__(self, words: int, size: int, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.words, self.places = nn.Embedding(words, size), nn.Embedding(10, size)
        self.norm = Norm(size)
        self.layers = nn.Sequential(*(Layer(size) for _ in range(3)))
        self.last = nn.Linear(size, words)
        self.apply(self.initialise)

    def initialise(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)): nn.init.normal_(module.weight, std=.02)
        elif isinstance(module, Norm) and not self.repaired:
            nn.init.normal_(module.gamma, std=.02)
            nn.init.normal_(module.beta, std=.02)
        if isinstance(module, nn.Linear): nn.init.zeros_(module.bias)

    def forward(self, text): return self.last(self.layers(self.norm(self.words(text) + self.places.weight)))


def texts(n: int):
    "Each word is the last one plus the step of its text; word 0 stands for a hidden one."
    start, step = torch.randint(0, 12, (n, 1)), torch.randint(1, 4, (n, 1))
    text = (start + step*torch.arange(10)) % 12 + 1
    hidden = torch.rand(n, 10) < .2
    return text.masked_fill(hidden, 0), text.masked_fill(~hidden, -100)


def build(repaired: bool) -> Parts:
    model = Language(13, 32, repaired)
    data = list(zip(*(part.split(32) for part in texts(2048))))

    def loss(output, target): return F.cross_entropy(output.flatten(0, 1), target.flatten())

    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-3), data, loss, valid=[texts(512)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(5):
            for text, target in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(text), target)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    text, target = parts.valid[0]
    with torch.no_grad(): return parts.loss(parts.model(text), target).item()/math.log(12)
