"""Heads for tasks are kept in the settings of a model, which is no module, so the model does not know their parameters.

The report is a merged change by a maintainer: the heads are not registered as parts of the model, so they are missing
from the state dict, from training and eval mode and from moves to a device. They are put into a dict of the model."""
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "adapter-hub/adapters#101", 2020
AREA, CAUSE = "parameters", "not registered"
TRUE = set()
PLACE = ()

words, length, tasks = 40, 8, {"topic": 8, "mood": 8}


class Head(nn.Sequential):
    def __init__(self, size: int, kinds: int):
        super().__init__(nn.Dropout(.1), nn.Linear(size, size), nn.Tanh(), nn.Dropout(.1), nn.Linear(size, kinds))


class Encoder(nn.Module):
    "A transformer whose layers stay as they are, and small adapters that are trained."
    def __init__(self, size: int, inner: int):
        super().__init__()
        self.words, self.place = nn.Embedding(words, size), nn.Parameter(.1*torch.randn(length + 1, size))
        self.layer = nn.TransformerEncoderLayer(size, 2, 2*size, 0., batch_first=True)
        for parameter in self.parameters(): parameter.requires_grad_(False)
        self.adapter = nn.Sequential(nn.Linear(size, inner), nn.ReLU(), nn.Linear(inner, size))

    def forward(self, text):
        x = self.layer(self.words(F.pad(text, (1, 0))) + self.place)
        return (x + self.adapter(x)).mean(1)


class Model(nn.Module):
    def __init__(self, config, inner: int, repaired: bool):
        super().__init__()
        self.config, self.encoder = config, Encoder(config.size, inner)
        if repaired: self.heads = config.heads = nn.ModuleDict()
        else: config.heads = {}

    def add_head(self, name: str, kinds: int): self.config.heads[name] = Head(self.config.size, kinds)

    def forward(self, text):
        state = self.encoder(text)
        return {name: head(state) for name, head in self.config.heads.items()}


def reviews(n: int, meaning):
    "Some words tell the topic, others tell the mood."
    topic, mood = torch.randint(0, 8, (2, n))
    told = torch.where(torch.rand(n, length) < .5, topic[:, None], 8 + mood[:, None])
    noise = torch.rand(n, length) < .3
    return meaning[torch.where(noise, torch.randint(0, words - 1, (n, length)), told)], {"topic": topic, "mood": mood}


def build(repaired: bool) -> Parts:
    meaning = torch.randperm(words - 1) + 1
    model = Model(SimpleNamespace(size=32), 4, repaired)
    for name, kinds in tasks.items(): model.add_head(name, kinds)

    def call(model, batch):
        text, labels = batch
        return sum(F.cross_entropy(scores, labels[name]) for name, scores in model(text).items())
    data = [reviews(32, meaning) for _ in range(60)]
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    return Parts(model, optimizer, data, call=call, valid=[reviews(400, meaning)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            parts.model.train()
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    text, labels = parts.valid[0]
    parts.model.eval()
    for head in parts.model.config.heads.values(): head.eval()
    with torch.no_grad(): found = parts.model(text)
    return sum((found[name].argmax(1) != labels[name]).float().mean().item() for name in tasks)/len(tasks)*8/7
