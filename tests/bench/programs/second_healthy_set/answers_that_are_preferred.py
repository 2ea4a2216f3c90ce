"""A language model is tuned to the answers that people prefer, beside a frozen copy of itself.

Habits of the source: the model was trained to answer before; of each pair the better and the worse answer go through
the model as one batch, padded with a label of its own; chances are summed over the answer and not over the question;
the loss begins at the logarithm of 2, and the outputs of model and copy are equal then; no dropout, so that they are;
RMSprop with a very small rate that rises in a line; a batch is split, and the parts of a loss are divided by their
number; clipping at 10; validation at the start and in the middle of the only epoch.
Score: the loss on new pairs by that of no preference. Below .8; 1 for the untrained model."""
import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "eric-mitchell/direct-preference-optimization trainers.py", 2023
WORDS, WIDE, ASKED, ANSWER, IGNORED, BETA = 16, 32, 4, 4, -100, .5


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.word, self.place = nn.Embedding(WORDS, WIDE), nn.Embedding(ASKED + ANSWER, WIDE)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(WIDE, 4, 64, 0., batch_first=True, norm_first=True)
                                    for _ in range(2))
        self.norm = nn.LayerNorm(WIDE)

    def forward(self, words):
        n = words.shape[1]
        h, mask = self.word(words) + self.place.weight[:n], torch.ones(n, n).triu(1).bool()
        for layer in self.layers: h = layer(h, src_mask=mask)
        return self.norm(h) @ self.word.weight.T


def questions(n: int): return torch.randint(1, WORDS, (n, ASKED))


def answers(asked, chance: float):
    "Words of the question, with other words now and then, of two to four words; the rest is padding."
    answer = torch.where(torch.rand(len(asked), ANSWER) < chance, asked, torch.randint(1, WORDS, (len(asked), ANSWER)))
    short = torch.arange(ANSWER) >= torch.randint(2, ANSWER + 1, (len(asked), 1))
    words, labels = torch.cat([asked, answer], 1), torch.cat([torch.full_like(asked, IGNORED), answer], 1)
    return words.masked_fill(F.pad(short, (ASKED, 0)), 0), labels.masked_fill(F.pad(short, (ASKED, 0)), IGNORED)


def pairs(n: int):
    "Two answers each; the one with fewer large words is preferred: first the better ones, then the others."
    asked = questions(n)
    one, two = answers(asked, .5), answers(asked, .5)
    def large(labels): return (labels > WORDS//2).float().sum(1)/(labels != IGNORED).sum(1)
    first = (large(one[1]) < large(two[1]))[:, None]
    unequal = large(one[1]) != large(two[1])
    better, worse = ([torch.where(way, a, b)[unequal] for a, b in zip(one, two)] for way in (first, ~first))
    return [torch.cat(both) for both in zip(better, worse)]


def chances(model, words, labels):
    "The logarithm of the chance of each answer."
    labels = labels[:, 1:]
    there = labels != IGNORED
    logs = model(words)[:, :-1].log_softmax(2).gather(2, labels.clamp(min=0)[:, :, None]).squeeze(2)
    return (logs*there).sum(1)


def build(repaired: bool) -> Parts:
    model = Model()
    nn.init.normal_(model.word.weight, std=.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(150):
        words, labels = answers(questions(64), .5)
        optimizer.zero_grad()
        (-chances(model, words, labels).sum()/(labels != IGNORED).sum()).backward()
        optimizer.step()
    frozen = copy.deepcopy(model).eval()
    def call(model, batch):
        better, worse = chances(model, *batch).chunk(2)
        with torch.no_grad(): of_better, of_worse = chances(frozen, *batch).chunk(2)
        return -F.logsigmoid(BETA*((better - worse) - (of_better - of_worse))).mean()
    return Parts(model, torch.optim.RMSprop(model.parameters(), lr=2e-4), [pairs(32) for _ in range(120)], call=call,
                 valid=[pairs(64) for _ in range(3)])


def train(parts: Parts, record) -> float:
    model, optimizer, held = parts.model, parts.optimizer, []
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1)/16))
    @torch.no_grad()
    def evaluate():
        model.eval()
        return sum(parts.call(model, batch).item() for batch in parts.valid)/len(parts.valid)
    with record.on(model, optimizer):
        for i in range(0, len(parts.data), 2):
            if i % 40 == 0: held.append(evaluate())
            model.train()
            total = 0
            for batch in parts.data[i:i + 2]:
                loss = parts.call(model, batch)
                (loss/2).backward()
                total += loss.item()/2
            nn.utils.clip_grad_norm_(model.parameters(), 10)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            record.step(total)
    return evaluate()/math.log(2)
