"""A transformer of letters in which each place is sent to one of four experts, if there is room.

Habits of the source: an expert takes no more places than its room, and those left over go on as they came; what comes
back is weighed by the chance of the route; a loss that balances the routes has a weight of .01 and is never far from 1
before that; experts are copies in structure with weights of their own; Adam with a warmup and the inverse root of the
step; Xavier weights for all matrices; layer norms in front; clipping at 1; validation after each pass.
Score: the loss on a held-out text less the best possible, by that of equal chances. Below .45; above 1 untrained."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE = "labmlai/annotated_deep_learning_paper_implementations labml_nn/transformers/switch/experiment.py"
YEAR = 2021
LETTERS, WIDE, LONG, EXPERTS, WARMUP, BATCH = 12, 32, 32, 4, 60, 16


class Switch(nn.Module):
    def __init__(self):
        super().__init__()
        self.switch = nn.Linear(WIDE, EXPERTS)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(WIDE, 64), nn.ReLU(), nn.Dropout(.05), nn.Linear(64, WIDE))
                                     for _ in range(EXPERTS))

    def forward(self, x):
        "The result, and how far from balanced the routes are: 1 is balanced."
        flat = x.flatten(0, 1)
        chances = self.switch(flat).softmax(1)
        best, route = chances.max(1)
        room, result = int(1.2*len(flat)/EXPERTS), flat.new_zeros(flat.shape)
        sent = torch.zeros(EXPERTS)
        for i, expert in enumerate(self.experts):
            places = (route == i).nonzero()[:, 0]
            sent[i] = len(places)
            places, over = places[:room], places[room:]
            result[places] = expert(flat[places])
            result[over] = flat[over]
        return (result*best[:, None]).view_as(x), EXPERTS*(sent/len(flat) @ chances.mean(0))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.switch = nn.MultiheadAttention(WIDE, 4, .05, batch_first=True), Switch()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDE) for _ in range(2))

    def forward(self, x, mask):
        h = self.norms[0](x)
        x = x + self.attention(h, h, h, attn_mask=mask, need_weights=False)[0]
        h, balance = self.switch(self.norms[1](x))
        return x + h, balance


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.letter, self.place = nn.Embedding(LETTERS, WIDE), nn.Parameter(torch.zeros(LONG, WIDE))
        self.layers, self.norm = nn.ModuleList(Layer() for _ in range(2)), nn.LayerNorm(WIDE)
        self.out = nn.Linear(WIDE, LETTERS)
        for weight in self.parameters():
            if weight.ndim > 1 and weight is not self.place: nn.init.xavier_uniform_(weight)

    def forward(self, letters):
        x, total = self.letter(letters)*WIDE**.5 + self.place, 0
        mask = torch.ones(LONG, LONG).triu(1).bool()
        for layer in self.layers:
            x, balance = layer(x, mask)
            total = total + balance/len(self.layers)
        return self.out(self.norm(x)), total


def call(model, batch, weight: float = .01):
    scores, balance = model(batch[:, :-1])
    return F.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten()) + weight*balance


def rate(step: int): return .5*WIDE**-.5*min(step**-.5, step*WARMUP**-1.5)


def text(n: int, chances):
    "Letters, each by the two before it, in rows."
    letters = [torch.randint(LETTERS, (n,)) for _ in range(2)]
    while len(letters) < LONG + 1: letters.append(torch.multinomial(chances[letters[-2] % 3, letters[-1]], 1)[:, 0])
    return torch.stack(letters, 1)


def build(repaired: bool) -> Parts:
    chances = (3*torch.randn(3, LETTERS, LETTERS)).softmax(2)
    model = Model()
    parts = Parts(model, torch.optim.Adam(model.parameters(), lr=rate(1), betas=(.9, .98), eps=1e-9),
                  list(text(60*BATCH, chances).split(BATCH)), call=call, valid=[text(100, chances)])
    parts.least = -(chances*chances.clamp(min=1e-9).log()).sum(2).mean().item()
    return parts


def train(parts: Parts, record) -> float:
    model, optimizer, step, held = parts.model, parts.optimizer, 0, []
    with record.on(model, optimizer):
        for _ in range(4):
            model.train()
            for batch in parts.data:
                step += 1
                optimizer.param_groups[0]["lr"] = rate(step)
                loss = parts.call(model, batch)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1)
                optimizer.step()
                optimizer.zero_grad()
                record.step(loss)
            model.eval()
            with torch.no_grad(): held += [parts.call(model, batch, 0.).item() for batch in parts.valid]
    return (held[-1] - parts.least)/(math.log(LETTERS) - parts.least)
