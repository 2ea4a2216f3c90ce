"""A warm-up takes the rate of the first group for all groups, so the new head learns as slowly as the old body.

The report is a merged change of a library for large models: where no highest rate is given, the warm-up takes that of
the first group only, and the rates of the others are lost without a word. It was checked with two groups."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "deepspeedai/DeepSpeed#8171", 2026
AREA, CAUSE = "optimizer and schedule", "learning rate too small"
TRUE = {"schedule does not fit", "loss does not fall"}
PLACE = ("head", "head.weight", "head.bias")


class WarmUp:
    "From zero to the highest rate of each group, in some steps, and no further."
    def __init__(self, optimizer, steps: int, repaired: bool):
        self.optimizer, self.steps, self.count = optimizer, steps, 0
        highest = [group["lr"] for group in optimizer.param_groups]
        self.highest = highest if repaired else highest[:1]*len(highest)
        self.set_rates()

    def set_rates(self):
        part = min(1., math.log(self.count + 1)/math.log(self.steps))
        for group, highest in zip(self.optimizer.param_groups, self.highest): group["lr"] = highest*part

    def step(self):
        self.count += 1
        self.set_rates()


class Reader(nn.Module):
    "A body that was trained before, and a head for a new task."
    def __init__(self, size: int, kinds: int):
        super().__init__()
        self.words, self.layer = nn.Embedding(40, size), nn.GRU(size, size, batch_first=True)
        self.head = nn.Linear(size, kinds)

    def forward(self, text): return self.head(self.layer(self.words(text))[0].mean(1))


def texts(n: int, topics):
    topic = torch.randint(0, len(topics), (n,))
    other = torch.randint(0, 40, (n, 12))
    return torch.where(torch.rand(n, 12) < .5, topics[topic].gather(1, torch.randint(0, 5, (n, 12))), other), topic


def trained_before(size: int, topics):
    model = Reader(size, len(topics))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        text, topic = texts(64, topics)
        optimizer.zero_grad()
        F.cross_entropy(model(text), topic).backward()
        optimizer.step()
    return model


def build(repaired: bool) -> Parts:
    topics = torch.stack([torch.randperm(40)[:5] for _ in range(8)])
    model = trained_before(32, topics)
    new = torch.randperm(8)
    model.head = nn.Linear(32, 8)
    optimizer = torch.optim.AdamW([{"params": [*model.words.parameters(), *model.layer.parameters()], "lr": 1e-5},
                                   {"params": model.head.parameters(), "lr": 1e-2}], weight_decay=.01)
    data = [(text, new[topic]) for text, topic in (texts(32, topics) for _ in range(32))]
    valid = [(text, new[topic]) for text, topic in [texts(512, topics)]]
    return Parts(model, optimizer, data, F.cross_entropy, valid=valid, repaired=repaired)


def train(parts: Parts, record) -> float:
    schedule = WarmUp(parts.optimizer, 30, parts.repaired)
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            for text, topic in parts.data:
                loss = parts.loss(parts.model(text), topic)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                schedule.step()
                record.step(loss)
    text, topic = parts.valid[0]
    with torch.no_grad(): return parts.loss(parts.model(text), topic).item()/math.log(8)
