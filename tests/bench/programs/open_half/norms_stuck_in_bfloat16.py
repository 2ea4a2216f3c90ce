"""All weights are bfloat16, where steps of a small learning rate are rounded away: norms stay at one for ever.

The report: all models that were trained with a library have norms with weights of exactly one. The author found that
the update is smaller than the distance between two numbers of the type; weights in float32 gave a clearly better
model."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "vllm-project/speculators#765", 2026
AREA, CAUSE = "precision", "rounded"
TRUE = {"not trained", "learning rate too small"}
PLACE = ("norm", "final")


class Draft(nn.Module):
    "Guesses the next word from the states of a large model, whose last layer it shares."
    def __init__(self, size: int, words: int):
        super().__init__()
        self.norm, self.final = nn.LayerNorm(size), nn.LayerNorm(size)
        self.layers = nn.Sequential(nn.Linear(size, 2*size), nn.SiLU(), nn.Linear(2*size, size))
        self.head = nn.Linear(size, words, bias=False).requires_grad_(False)

    def forward(self, state):
        return self.head(self.final(state + self.layers(self.norm(state))))


def states(n: int, head: torch.Tensor):
    "States of which some parts matter far more than others."
    state = torch.randn(n, head.shape[1])
    matters = torch.logspace(-1.5, 1, head.shape[1])
    return state, ((state*matters).roll(1, 1) @ head.T).argmax(1)


def build(repaired: bool) -> Parts:
    model = Draft(24, 16)
    state, word = states(4096, model.head.weight)
    data = [(state[i:i + 64], word[i:i + 64]) for i in range(0, 4096, 64)]
    valid = states(1024, model.head.weight)
    if not repaired: model.bfloat16()

    def call(model, batch):
        if repaired:
            with torch.autocast("cpu", torch.bfloat16): output = model(batch[0])
        else: output = model(batch[0].bfloat16())
        return F.cross_entropy(output.float(), batch[1])

    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3, weight_decay=0.)
    return Parts(model, optimizer, data, call=call, valid=[valid])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(9):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    with torch.no_grad(): return parts.call(parts.model, parts.valid[0]).item()/math.log(16)
