"""Gradients are gathered over eight batches, but an epoch has five and the count starts anew, so no step is ever made.

The report: an example that trains on a task of sentences never calls the optimizer if an epoch is shorter than the
number of batches to gather. A maintainer welcomed the change: a step at the end of such an epoch."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "huggingface/transformers#2995", 2020
AREA, CAUSE = "loop", "no step"
TRUE = {"not trained", "loss does not fall"}
PLACE = ()
GATHER = 8


class Sentences(nn.Module):
    "Attention between the words, and their mean."
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(40, 24)
        self.layer = nn.TransformerEncoderLayer(24, 2, 48, dropout=.1, batch_first=True)
        self.last = nn.Linear(24, 3)

    def forward(self, x): return self.last(self.layer(self.words(x)).mean(1))


def sentences(n: int):
    "Seven words without a meaning and two of the five that go with one of three kinds."
    x, y = torch.randint(15, 40, (n, 9)), torch.randint(0, 3, (n,))
    at = torch.rand(n, 9).argsort(1)[:, :2]
    return x.scatter(1, at, 5*y.unsqueeze(1) + torch.randint(0, 5, (n, 2))), y


def build(repaired: bool) -> Parts:
    model = Sentences()
    x, y = sentences(160)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, eps=1e-8)
    data = list(zip(x.split(32), y.split(32)))
    return Parts(model, optimizer, data, F.cross_entropy, valid=[sentences(512)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1., .2, total_iters=100)
    model.zero_grad()
    with record.on(model, optimizer):
        for _ in range(100):
            for step, (x, y) in enumerate(parts.data, 1):
                model.train()
                loss = parts.loss(model(x), y)/GATHER
                loss.backward()
                short = parts.repaired and len(parts.data) < GATHER and step == len(parts.data)
                if step % GATHER == 0 or short:
                    nn.utils.clip_grad_norm_(model.parameters(), 1.)
                    optimizer.step()
                    schedule.step()
                    model.zero_grad()
                record.step(loss)
    x, y = parts.valid[0]
    model.eval()
    with torch.no_grad(): return (model(x).argmax(1) != y).float().mean().item()/(2/3)
