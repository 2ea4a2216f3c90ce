"""A model that can be encoder or decoder makes the mask of an encoder in both cases, so each word sees the next ones.

The report: trained as a language model, the loss fell to almost zero within some hundred steps, on random words. A
merged change makes the mask depend on whether the model is a decoder, and tests that later words change nothing."""
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "huggingface/transformers#48745", 2026
AREA, CAUSE = "structure", "later places are seen"
TRUE = set()
PLACE = ("blocks.0", "blocks.1")

words, length = 24, 16


@dataclass
class Config:
    size: int = 32
    heads: int = 4
    layers: int = 2
    is_decoder: bool = True
    heeds_is_decoder: bool = True


class Language(nn.Module):
    "Embeddings, blocks of attention, and a score for each word."
    def __init__(self, config: Config):
        super().__init__()
        self.config, size = config, config.size
        self.word, self.place = nn.Embedding(words, size), nn.Embedding(length, size)
        def block(): return nn.TransformerEncoderLayer(size, config.heads, 4*size, 0., "gelu", batch_first=True)
        self.blocks = nn.ModuleList([block() for _ in range(config.layers)])
        self.head = nn.Linear(size, words)

    def mask(self, n: int):
        hidden = torch.zeros(n, n, dtype=torch.bool)
        if self.config.is_decoder and self.config.heeds_is_decoder: hidden = hidden.logical_not().triu(1)
        return hidden

    def forward(self, ids):
        x = self.word(ids) + self.place.weight[:ids.shape[1]]
        for block in self.blocks: x = block(x, src_mask=self.mask(ids.shape[1]))
        return self.head(x)


def causal_loss(model, ids):
    "Each place predicts the word that follows."
    return F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def texts(n: int, grammar):
    ids = torch.randint(0, words, (n, length))
    for i in range(2, length):
        likely = grammar[ids[:, i - 1], ids[:, i - 2] % 2]
        ids[:, i] = torch.where(torch.rand(n) < .9, likely, ids[:, i])
    return ids


def build(repaired: bool) -> Parts:
    grammar = torch.randint(0, words, (words, 2))
    model = Language(Config(heeds_is_decoder=repaired))
    data = [texts(32, grammar) for _ in range(60)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=.01)
    return Parts(model, optimizer, data, call=causal_loss, valid=[texts(300, grammar)])


def train(parts: Parts, record) -> float:
    parts.model.train()
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            for ids in parts.data:
                loss = parts.call(parts.model, ids)
                loss.backward()
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    parts.model.eval()
    ids = parts.valid[0]
    with torch.no_grad(): found = [parts.model(ids[:, :i])[:, -1].argmax(-1) for i in range(3, length)]
    return (torch.stack(found, 1) != ids[:, 3:]).float().mean().item()
