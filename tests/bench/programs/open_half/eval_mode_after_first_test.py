"""After the first test the model stays in eval mode, so that all later training is without dropout.

The report: in the examples for BERT and GPT-2 the function that evaluates calls `eval()`, and the loop does not go back
to training. The author looked at the mode after the first test and found it wrong; the merged change sets it again."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "asyml/texar-pytorch#311", 2020
AREA, CAUSE = "modes", "eval mode"
TRUE = set()
PLACE = ()


class Texts(nn.Module):
    "A small transformer that classifies a text by the mean of its last states."
    def __init__(self, words: int, size: int):
        super().__init__()
        self.words, self.places = nn.Embedding(words, size), nn.Embedding(12, size)
        self.drop = nn.Dropout(.3)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(size, 4, 2*size, .3, batch_first=True) for _ in range(2))
        self.last = nn.Linear(size, 2)

    def forward(self, text):
        x = self.drop(self.words(text) + self.places.weight)
        for layer in self.layers: x = layer(x)
        return self.last(self.drop(x.mean(1)))


def texts(n: int):
    "Twelve of 30 words, the first 10 of which are good and the next 10 bad; a tenth of the labels is wrong."
    text = torch.randint(0, 30, (n, 12))
    good = (text < 10).sum(1) > ((text >= 10) & (text < 20)).sum(1)
    return text, (good ^ (torch.rand(n) < .1)).long()


def build(repaired: bool) -> Parts:
    model = Texts(30, 32)
    text, label = texts(320)
    data = [(text[i:i + 32], label[i:i + 32]) for i in range(0, 320, 32)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, F.cross_entropy, valid=[texts(512)],
                 repaired=repaired)


def evaluate(parts: Parts) -> float:
    parts.model.eval()
    text, label = parts.valid[0]
    with torch.no_grad(): return parts.loss(parts.model(text), label).item()/math.log(2)


def train(parts: Parts, record) -> float:
    parts.model.train()
    with record.on(parts.model, parts.optimizer):
        for _ in range(30):
            for text, label in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(text), label)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
            error = evaluate(parts)
            if parts.repaired: parts.model.train()
    return error
