"""A schedule that is written for steps, with its warm-up, moves once an epoch, as the trainer does by itself.

The report: a schedule of one's own for a language model, handed to a trainer, does not seem to function. The answer was
that it has to be told to move at each step, since an epoch is the default; the author did so, and it was mended."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "Lightning-AI/pytorch-lightning#19534", 2024
AREA, CAUSE = "optimizer and schedule", "schedule does not fit"
TRUE = {"learning rate too small"}
PLACE = ()
words, long, epochs, batches = 24, 16, 8, 25
follows = torch.rand(words, words, generator=torch.Generator().manual_seed(1)).argsort(1)[:, :3]


class Writer(nn.Module):
    "A small causal transformer."
    def __init__(self, size: int = 32):
        super().__init__()
        self.word, self.place = nn.Embedding(words, size), nn.Embedding(long, size)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(size, 4, 2*size, 0., batch_first=True), 2,
                                            enable_nested_tensor=False)
        self.next = nn.Linear(size, words)

    def forward(self, text):
        mask = torch.ones(long, long, dtype=torch.bool).triu(1)
        return self.next(self.layers(self.word(text) + self.place.weight, mask=mask))


def texts(n: int):
    "Each word is followed by one of three, most often by the first of them."
    text = [torch.randint(words, (n,))]
    for _ in range(long):
        which = torch.multinomial(torch.tensor([.8, .1, .1]), n, replacement=True)
        text.append(follows[text[-1], which])
    text = torch.stack(text, 1)
    return text[:, :-1], text[:, 1:]


def loss(output, after): return F.cross_entropy(output.flatten(0, 1), after.flatten())


def share(step: int, warmup: int = 40, total: int = epochs*batches):
    if step < warmup: return step/warmup
    return .5*(1 + math.cos(math.pi*min(1, (step - warmup)/(total - warmup))))


def build(repaired: bool) -> Parts:
    model = Writer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    text, after = texts(batches*16)
    data = list(zip(text.split(16), after.split(16)))
    return Parts(model, optimizer, data, loss, valid=[texts(128)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, share)
    with record.on(model, optimizer):
        for _ in range(epochs):
            for text, after in parts.data:
                loss = parts.loss(model(text), after)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if parts.repaired: schedule.step()
                record.step(loss)
            if not parts.repaired: schedule.step()
    text, after = parts.valid[0]
    with torch.no_grad(): return parts.loss(model(text), after).item()/math.log(words)
