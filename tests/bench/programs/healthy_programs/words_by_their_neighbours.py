"""Vectors of words from the words around them, against words drawn by their frequency.

Habits of the source: sparse gradients and the optimizer made for them; vectors of the middle begin tiny and uniform,
those of the neighbours at zero, so that all scores are zero at first; scores clamped at ten; frequent words are left
out at random; negatives from frequencies to the power of .75, of which some are right answers by accident; windows of
random width; a cosine schedule over all steps, moved after each.
Score: how often the nearest of other words is from another topic, by chance. Below .1; about 1 untrained."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "Andras7/word2vec-pytorch word2vec/trainer.py", 2019
TOPICS, EACH, WIDE, NEGATIVES = 6, 12, 16, 5
WORDS = TOPICS*EACH + 8     # the last ones go with every topic


class SkipGram(nn.Module):
    def __init__(self):
        super().__init__()
        self.middle, self.around = (nn.Embedding(WORDS, WIDE, sparse=True) for _ in range(2))
        nn.init.uniform_(self.middle.weight, -1/WIDE, 1/WIDE)
        nn.init.zeros_(self.around.weight)

    def forward(self, middle, right, wrong):
        v = self.middle(middle)
        near = -F.logsigmoid((v*self.around(right)).sum(1).clamp(-10, 10))
        far = -F.logsigmoid(-torch.bmm(self.around(wrong), v.unsqueeze(2))[..., 0].clamp(-10, 10)).sum(1)
        return (near + far).mean()


def sentences(n: int):
    "Ten words of one topic, rare and frequent ones, between words that go with everything."
    topic = torch.randint(TOPICS, (n, 1))
    within = torch.multinomial(1/torch.arange(1., EACH + 1), n*10, replacement=True).view(n, 10)
    common = TOPICS*EACH + torch.randint(8, (n, 10))
    return torch.where(torch.rand(n, 10) < .4, common, topic*EACH + within)


def pairs(text):
    "Middle and neighbour for windows of one to three words, without some of the frequent words."
    often = torch.bincount(text.flatten(), minlength=WORDS)/text.numel()
    keep = ((.005/often).sqrt() + .005/often).clamp(max=1)
    found = []
    for line in text.tolist():
        line = [word for word, dice in zip(line, torch.rand(10).tolist()) if dice < keep[word]]
        for i, word in enumerate(line):
            wide = torch.randint(1, 4, ()).item()
            found += [(word, other) for j, other in enumerate(line) if j != i and abs(j - i) <= wide]
    return torch.tensor(found), (often**.75)


class Batches:
    def __init__(self, pairs, often): self.pairs, self.often = pairs, often

    def __len__(self): return math.ceil(len(self.pairs)/128)

    def __iter__(self):
        for rows in torch.randperm(len(self.pairs)).split(128):
            wrong = torch.multinomial(self.often, len(rows)*NEGATIVES, replacement=True).view(-1, NEGATIVES)
            yield *self.pairs[rows].T, wrong


def build(repaired: bool) -> Parts:
    model = SkipGram()
    data, valid = Batches(*pairs(sentences(800))), Batches(*pairs(sentences(100)))
    return Parts(model, torch.optim.SparseAdam(model.parameters(), lr=1e-2), data,
                 call=lambda model, batch: model(*batch), valid=valid)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6*len(parts.data))
    with record.on(model, optimizer):
        for _ in range(6):
            for batch in parts.data:
                optimizer.zero_grad()
                loss = parts.call(model, batch)
                loss.backward()
                optimizer.step()
                schedule.step()
                record.step(loss)
    with torch.no_grad(): v = F.normalize(model.middle.weight[:TOPICS*EACH], dim=1)
    topic, nearest = torch.arange(TOPICS*EACH)//EACH, (v @ v.T).fill_diagonal_(-2).argmax(1)
    return (topic[nearest] != topic).float().mean().item()*TOPICS/(TOPICS - 1)
