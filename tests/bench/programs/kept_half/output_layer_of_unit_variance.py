"""The weights of the last layer have a variance of one, as if it shared them with the embedding: the logits are huge.

The report: the logits of a text-to-text transformer have a variance as large as its width, so that training begins with
a loss of about 110. With a variance of one over the width in the output layer the author saw it begin with 11."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "huggingface/transformers#26441", 2023
AREA, CAUSE = "initialisation", "weights too large"
TRUE = set()
PLACE = ("last",)


class Translator(nn.Module):
    "An encoder over the text, and a decoder that sees it and its own words so far."
    def __init__(self, words: int, size: int, repaired: bool):
        super().__init__()
        self.words, self.places = nn.Embedding(words, size), nn.Embedding(9, size)
        options = {"dim_feedforward": 2*size, "dropout": 0., "batch_first": True, "norm_first": True}
        self.encoder = nn.TransformerEncoderLayer(size, 4, **options)
        self.decoder = nn.TransformerDecoderLayer(size, 4, **options)
        self.norm, self.last = nn.LayerNorm(size), nn.Linear(size, words, bias=False)
        nn.init.normal_(self.last.weight, std=size**-.5 if repaired else 1.)

    def embed(self, text): return self.words(text) + self.places.weight[:text.shape[1]]

    def forward(self, text, answer):
        later = torch.ones(answer.shape[1], answer.shape[1], dtype=torch.bool).triu(1)
        x = self.decoder(self.embed(answer), self.encoder(self.embed(text)), tgt_mask=later)
        return self.last(self.norm(x))


def pairs(n: int):
    "Texts of six of 30 words; the answer is the text backwards with other words. Word 0 begins it."
    text = torch.randint(1, 31, (n, 6))
    return text, F.pad(text.flip(1)*7 % 31, (1, 0))


def build(repaired: bool) -> Parts:
    model = Translator(31, 64, repaired)
    text, answer = pairs(4096)
    data = [(text[i:i + 32], answer[i:i + 32]) for i in range(0, 4096, 32)]

    def call(model, batch):
        text, answer = batch
        return F.cross_entropy(model(text, answer[:, :-1]).flatten(0, 1), answer[:, 1:].flatten())

    return Parts(model, torch.optim.AdamW(model.parameters(), lr=5e-4), data, call=call, valid=[pairs(512)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(1):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 1.)
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad(): return parts.call(parts.model, parts.valid[0]).item()/math.log(30)
