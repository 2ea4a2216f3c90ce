"""An Adam counts its steps in bfloat16, where 256 and one is 256, so its correction stays at that of step 256.

The report is a change to a library of optimizers for large models: the count takes the default type, and where that is
bfloat16 it stops. Its author measured count and parameter with both types, and with the count in float32."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pytorch/ao#4915", 2026
AREA, CAUSE = "precision", "rounded"
TRUE = {"learning rate too small"}
PLACE = ()
TOKENS = 24


class CountingAdam(torch.optim.Optimizer):
    def __init__(self, params, lr: float, kind: torch.dtype):
        super().__init__(params, {"lr": lr, "betas": (.9, .999)})
        self.kind = kind

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            first, second = group["betas"]
            for p in group["params"]:
                if p.grad is None: continue
                state = self.state[p]
                if not state:
                    state.update(step=torch.tensor(0., dtype=self.kind), mean=torch.zeros_like(p),
                                 square=torch.zeros_like(p))
                state["step"] += 1
                count = state["step"].float()
                state["mean"].lerp_(p.grad, 1 - first)
                state["square"].lerp_(p.grad.square(), 1 - second)
                size = state["square"].sqrt()/(1 - second**count).sqrt() + 1e-8
                p.addcdiv_(state["mean"], size, value=-group["lr"]/(1 - first**count.item()))


class NextToken(nn.Module):
    "What follows after a token."
    def __init__(self, size: int):
        super().__init__()
        self.tokens, self.last = nn.Embedding(TOKENS, size), nn.Linear(size, TOKENS)
        nn.init.normal_(self.tokens.weight, std=.02)
        nn.init.normal_(self.last.weight, std=.02)

    def forward(self, token): return self.last(self.tokens(token))


def next_token(model, batch): return F.cross_entropy(model(batch[:, 0]), batch[:, 1])


def texts(n: int, following):
    token = torch.randint(0, TOKENS, (n,))
    return torch.stack([token, following[token].gather(1, torch.randint(0, 2, (n, 1))).squeeze(1)], 1)


def build(repaired: bool) -> Parts:
    model = NextToken(32)
    following = torch.stack([torch.randperm(TOKENS)[:2] for _ in range(TOKENS)])
    optimizer = CountingAdam(model.parameters(), 4e-4, torch.float32 if repaired else torch.bfloat16)
    return Parts(model, optimizer, list(texts(12800, following).split(128)), call=next_token,
                 valid=[texts(2000, following)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(10):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    with torch.no_grad(): return (parts.call(parts.model, parts.valid[0]).item() - math.log(2))/math.log(TOKENS/2)
