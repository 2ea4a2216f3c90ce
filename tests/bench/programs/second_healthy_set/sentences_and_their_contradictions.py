"""Vectors of sentences: near to what follows from a sentence, far from what contradicts it.

Habits of the source: a sentence, one that follows and one that does not are flattened into one batch for one call of
the encoder; the vector of the first token goes through one more layer and tanh; cosines are divided by .05, so that
the first losses are large; AdamW with decay for weights only, and a rate that falls to zero in a line; the order of
similar pairs is measured in the middle of the epoch, and the best weights are kept.
Score: 1 - the rank correlation with the true overlap on new pairs. Below .35; about .6 for the untrained model."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "princeton-nlp/SimCSE simcse/models.py", 2021
PAD, FIRST, IDEAS, WAYS, LONG, STEPS = 0, 1, 12, 2, 6, 200


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.word, self.place = nn.Embedding(2 + IDEAS*WAYS, 32, padding_idx=PAD), nn.Embedding(LONG, 32)
        self.norm, self.dropout = nn.LayerNorm(32), nn.Dropout(.1)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(32, 4, 64, .1, "gelu", batch_first=True)
                                    for _ in range(2))
        self.dense = nn.Linear(32, 32)

    def forward(self, words):
        h = self.dropout(self.norm(self.word(words) + self.place.weight[:words.shape[1]]))
        for layer in self.layers: h = layer(h, src_key_padding_mask=words == PAD)
        return self.dense(h[:, 0]).tanh()


def said(ideas):
    "A sentence of some ideas, each by one of its words, in any order, with padding behind it."
    words = ideas[torch.randperm(len(ideas))]*WAYS + torch.randint(WAYS, (len(ideas),)) + 2
    return F.pad(torch.cat([torch.tensor([FIRST]), words]), (0, LONG - 1 - len(words)))


def triple():
    ideas = torch.randperm(IDEAS)[:int(torch.randint(3, LONG, ()))]
    other = torch.cat([ideas[:1], torch.randperm(IDEAS)[:len(ideas) - 1]])
    return torch.stack([said(ideas), said(ideas), said(other)])


def pair():
    "Two sentences, and how many ideas they share."
    both, shared = torch.randperm(IDEAS)[:8], int(torch.randint(5, ()))
    return said(both[:4]), said(both[4 - shared:8 - shared]), torch.tensor(float(shared))


def call(model, batch):
    size, number, _ = batch.shape
    first, second, third = model(batch.flatten(0, 1)).view(size, number, -1).unbind(1)
    cosines = [F.cosine_similarity(first[:, None], other[None], dim=-1)/.05 for other in (second, third)]
    return F.cross_entropy(torch.cat(cosines, 1), torch.arange(size))


def ranks(x): return x.argsort().argsort().float()


@torch.no_grad()
def evaluate(model, pairs) -> float:
    model.eval()
    one, two, shared = pairs
    found = ranks(F.cosine_similarity(model(one), model(two)))
    true = torch.stack([ranks(shared)[shared == s].mean() for s in range(5)])[shared.long()]
    return 1 - torch.corrcoef(torch.stack([found, true]))[0, 1].item()


def build(repaired: bool) -> Parts:
    model = Encoder()
    weights = [w for w in model.parameters() if w.ndim > 1]
    optimizer = torch.optim.AdamW([{"params": weights, "weight_decay": .01}, {"weight_decay": 0, "params":
                                  [w for w in model.parameters() if w.ndim < 2]}], lr=3e-3)
    parts = Parts(model, optimizer, [torch.stack([triple() for _ in range(32)]) for _ in range(STEPS)], call=call,
                  valid=[torch.stack([triple() for _ in range(32)])])
    parts.pairs = [[torch.stack(column) for column in zip(*(pair() for _ in range(300)))] for _ in range(2)]
    return parts


def train(parts: Parts, record) -> float:
    model, optimizer, best = parts.model, parts.optimizer, (9,)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step/STEPS)
    with record.on(model, optimizer):
        for i, batch in enumerate(parts.data):
            model.train()
            loss = parts.call(model, batch)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1)
            optimizer.step()
            schedule.step()
            model.zero_grad()
            record.step(loss)
            if i % 50 == 49:
                error = evaluate(model, parts.pairs[0])
                if error < best[0]: best = error, copy.deepcopy(model.state_dict())
    model.load_state_dict(best[1])
    return evaluate(model, parts.pairs[1])
