"""Blocks with low-rank adapters are computed again in backward, in the way that asks for inputs with a gradient.

The report: with gradient checkpointing the scores are worse, though it should only save memory. A maintainer explained
it: the reentrant variant gives no gradients if no input of a block needs one, as behind a frozen embedding. With the
switch handed over so that the trainer does not reset it, all is well."""
import warnings

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.bench.programs import Parts

SOURCE, YEAR = "huggingface/transformers#26221", 2023
AREA, CAUSE = "parameters", "detached part"
TRUE = {"not trained"}
PLACE = ("blocks.0", "blocks.1", "blocks.0.query", "blocks.0.value", "blocks.1.query", "blocks.1.value")

words, length, classes = 40, 10, 4


class LowRank(nn.Module):
    "A frozen layer and two small factors beside it."
    def __init__(self, size: int, rank: int):
        super().__init__()
        self.base = nn.Linear(size, size).requires_grad_(False)
        self.down, self.up = nn.Linear(size, rank, bias=False), nn.Linear(rank, size, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x): return self.base(x) + 2*self.up(self.down(x))


class Block(nn.Module):
    def __init__(self, size: int, rank: int):
        super().__init__()
        self.query, self.value = LowRank(size, rank), LowRank(size, rank)
        self.key, self.out = (nn.Linear(size, size).requires_grad_(False) for _ in range(2))
        self.wide = nn.Sequential(nn.Linear(size, 2*size), nn.GELU(), nn.Linear(2*size, size)).requires_grad_(False)
        self.norms = nn.ModuleList([nn.LayerNorm(size).requires_grad_(False) for _ in range(2)])

    def forward(self, x):
        q, k, v = (layer(x).unflatten(2, (4, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value))
        x = self.norms[0](x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)))
        return self.norms[1](x + self.wide(x))


class Classifier(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.reentrant = not repaired
        self.embed = nn.Embedding(words, size).requires_grad_(False)
        self.blocks = nn.ModuleList([Block(size, 8) for _ in range(2)])
        self.head = nn.Linear(size, classes)

    def forward(self, text):
        x = self.embed(text)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant) if self.training else block(x)
        return self.head(x[:, 0])


def texts(n: int):
    "One word of the topic among others; the class is read at a mark in front."
    topic = torch.randint(classes, (n,))
    text = torch.randint(2 + 2*classes, words, (n, length))
    text[:, 0] = 1
    text.scatter_(1, torch.randint(1, length, (n, 1)), (2 + 2*topic + torch.randint(2, (n,)))[:, None])
    return text, topic


def build(repaired: bool) -> Parts:
    model = Classifier(32, repaired)
    trained = [p for p in model.parameters() if p.requires_grad]
    data = [texts(32) for _ in range(50)]
    return Parts(model, torch.optim.AdamW(trained, lr=3e-3), data, F.cross_entropy, valid=[texts(400)])


def train(parts: Parts, record) -> float:
    with warnings.catch_warnings(), record.on(parts.model, parts.optimizer):
        warnings.simplefilter("ignore")  # torch warns of inputs that need no gradient
        for _ in range(4):
            parts.model.train()
            for text, topic in parts.data:
                loss = parts.loss(parts.model(text), topic)
                loss.backward()
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
        text, topic = parts.valid[0]
        with torch.no_grad(): logits = parts.model.eval()(text)
    return (parts.loss(logits, topic)/torch.tensor(float(classes)).log()).item()
