"""A schedule that is meant for epochs takes a step with each optimizer step, so the rate is gone within the first.

The report: a language model is trained with gradients gathered over several batches, and the schedule is called each
time they are used. The rate drops rapidly. A maintainer answered with a change that moves the call behind the epoch."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "meta-llama/llama-cookbook#27", 2023
AREA, CAUSE = "optimizer and schedule", "scheduler each batch"
TRUE = {"learning rate too small", "loss does not fall"}
PLACE = ()
GATHER = 2


class Tokens(nn.Module):
    "One layer of attention over what came before."
    def __init__(self, tokens: int, length: int):
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, 32), nn.Parameter(.1*torch.randn(length, 32))
        self.layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0., batch_first=True)
        self.last = nn.Linear(32, tokens)
        self.register_buffer("later", torch.ones(length, length, dtype=torch.bool).triu(1))

    def forward(self, x):
        return self.last(self.layer(self.tokens(x) + self.places, src_mask=self.later))


def texts(n: int, likely):
    "Chains of tokens in which the next one mostly follows from the last one."
    found = [torch.randint(0, 16, (n,))]
    for _ in range(12): found.append(torch.where(torch.rand(n) < .85, likely[found[-1]], torch.randint(0, 16, (n,))))
    return torch.stack(found, 1)


def next_token(model, batch): return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def build(repaired: bool) -> Parts:
    model, likely = Tokens(16, 12), torch.randperm(16)
    data = list(texts(1024, likely).split(32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.)
    return Parts(model, optimizer, data, call=next_token, valid=[texts(512, likely)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=.85)
    with record.on(model, optimizer):
        for _ in range(10):
            for i, batch in enumerate(parts.data, 1):
                loss = parts.call(model, batch)/GATHER
                loss.backward()
                if i % GATHER == 0 or i == len(parts.data):
                    optimizer.step()
                    optimizer.zero_grad()
                    if not parts.repaired: schedule.step()
                record.step(loss)
            if parts.repaired: schedule.step()
    with torch.no_grad(): return parts.call(model, parts.valid[0]).item()/math.log(16)
