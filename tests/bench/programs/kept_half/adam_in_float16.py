"""All weights are float16, and the small number of Adam is 1e-8, which is zero there: zero is divided by zero.

The report: in the training of a reward model all parameters become NaN at the first update. The model is loaded in
float16, and Adam's number is rounded to zero. A merged change mends it."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "CambioML/pykoi#69", 2023
AREA, CAUSE = "precision", "epsilon"
TRUE = {"NaN or Inf"}
PLACE = ("words",)


class Reward(nn.Module):
    "How good a text is."
    def __init__(self, words: int, size: int):
        super().__init__()
        self.words = nn.Embedding(words, size)
        self.layers = nn.Sequential(nn.Linear(size, size), nn.Tanh(), nn.Linear(size, 1))

    def forward(self, text): return self.layers(self.words(text).mean(1))[:, 0]


def pairs(n: int):
    "Two texts of eight words out of 100, the first of which has more good words."
    first, second = torch.randint(0, 100, (2, n, 8))
    better = (first < 30).sum(1) >= (second < 30).sum(1)
    return torch.where(better[:, None], first, second), torch.where(better[:, None], second, first)


def build(repaired: bool) -> Parts:
    model = Reward(100, 32).half()
    chosen, rejected = pairs(2048)
    data = [(chosen[i:i + 32], rejected[i:i + 32]) for i in range(0, 2048, 32)]

    def call(model, batch): return -F.logsigmoid((model(batch[0]) - model(batch[1])).float()).mean()

    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, eps=1e-4 if repaired else 1e-8)
    return Parts(model, optimizer, data, call=call, valid=[pairs(1024)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(5):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad(): return parts.call(parts.model, parts.valid[0]).item()/math.log(2)
