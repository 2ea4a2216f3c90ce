"""The learning rate is too large for the model and batch that fit the device, and training breaks down on the way.

The report: a language model is trained with texts of half the length, for lack of memory, and otherwise as it was set.
The loss is lost after some thousand steps. A user recommends a smaller learning rate; the author confirms that it
works."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "karpathy/nanoGPT#136", 2023
AREA, CAUSE = "optimizer and schedule", "learning rate too large"
TRUE = {"loss does not fall", "loss rises", "spike", "saturated", "dead attention", "samples alike", "constant output",
        "activations explode", "outputs blow up", "gradients explode"}
PLACE = ()
TOKENS, LENGTH, STEPS, WARM = 16, 12, 300, 20


class Block(nn.Module):
    def __init__(self, size: int, heads: int):
        super().__init__()
        self.norm_one, self.norm_two = nn.LayerNorm(size), nn.LayerNorm(size)
        self.all, self.out, self.heads = nn.Linear(size, 3*size), nn.Linear(size, size), heads
        self.wide = nn.Sequential(nn.Linear(size, 4*size), nn.GELU(), nn.Linear(4*size, size))

    def forward(self, x):
        n, t, size = x.shape
        q, k, v = (y.view(n, t, self.heads, -1).transpose(1, 2) for y in self.all(self.norm_one(x)).split(size, 2))
        told = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(told.transpose(1, 2).reshape(n, t, size))
        return x + self.wide(self.norm_two(x))


class Writer(nn.Module):
    "The first and the last layer share their weights."
    def __init__(self, size: int):
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS, size), nn.Embedding(LENGTH, size)
        self.blocks, self.norm = nn.Sequential(*(Block(size, 2) for _ in range(2))), nn.LayerNorm(size)
        self.last = nn.Linear(size, TOKENS, bias=False)
        self.last.weight = self.tokens.weight
        for p in self.parameters():
            if p.dim() > 1: nn.init.normal_(p, std=.02)

    def forward(self, x):
        return self.last(self.norm(self.blocks(self.tokens(x) + self.places.weight[:x.shape[1]])))


def texts(n: int, likely):
    "The next token follows from the last two, most of the time."
    found = list(torch.randint(0, TOKENS, (2, n)))
    while len(found) <= LENGTH:
        follows = likely[found[-1], found[-2] % 2]
        found.append(torch.where(torch.rand(n) < .95, follows, torch.randint(0, TOKENS, (n,))))
    return torch.stack(found, 1)


def next_token(model, x): return F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())


def build(repaired: bool) -> Parts:
    model, likely = Writer(32), torch.randint(0, TOKENS, (TOKENS, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3 if repaired else 3e-1, betas=(.9, .95), weight_decay=.1)
    return Parts(model, optimizer, list(texts(24*STEPS, likely).split(24)), call=next_token,
                 valid=[texts(256, likely)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(
        (step + 1)/WARM, .1 + .45*(1 + math.cos(math.pi*max(0, step - WARM)/(STEPS - WARM)))))
    with record.on(model, optimizer):
        for x in parts.data:
            loss = parts.call(model, x)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            schedule.step()
            record.step(loss)
    with torch.no_grad(): return parts.call(model, parts.valid[0]).item()/math.log(TOKENS)
