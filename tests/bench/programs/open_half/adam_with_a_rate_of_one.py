"""A language model is trained by Adam with a learning rate of 1.

The report: the loss hardly goes down over many epochs. The rate of the settings was 1.0; with Adam's own rate of 0.001
the author of the report got a much better training, and the maintainer changed the settings."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "rajveermalviya/language-modeling#3", 2018
AREA, CAUSE = "optimizer and schedule", "learning rate too large"
TRUE = {"saturated", "outputs blow up", "loss rises"}
PLACE = ()


class Letters(nn.Module):
    "An LSTM that says which letter comes next."
    def __init__(self, letters: int):
        super().__init__()
        self.letters = nn.Embedding(letters, 24)
        self.memory = nn.LSTM(24, 48, batch_first=True)
        self.last = nn.Linear(48, letters)

    def forward(self, x): return self.last(self.memory(self.letters(x))[0])


def texts(n: int, words):
    "Words of four letters one after the other."
    return words[torch.randint(0, len(words), (n, 4))].flatten(1)


def next_letter(model, batch): return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def build(repaired: bool) -> Parts:
    model, words = Letters(20), torch.randint(0, 20, (12, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3 if repaired else 1.)
    return Parts(model, optimizer, list(texts(1024, words).split(32)), call=next_letter, valid=[texts(512, words)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(12):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 1.)
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad(): return parts.call(parts.model, parts.valid[0]).item()/math.log(20)
