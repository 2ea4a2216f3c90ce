"""Hooks on functions and attention, in a training step of a GPT of 6 layers of width 192: to the step without them."""
import nnsight
import torch
import torch.nn.functional as F
import torchlens
from torch import nn

import hooklab as hl
from tests.bench.measure import ratios

WIDTH, HEADS, LAYERS, LENGTH, BATCH, WORDS = 192, 6, 6, 128, 8, 512
ATTENTION = F.scaled_dot_product_attention


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3*WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4*WIDTH), nn.GELU(), nn.Linear(4*WIDTH, WIDTH))
        self.norm2 = nn.LayerNorm(WIDTH)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.word, self.place = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        x = self.word(words) + self.place.weight
        for block in self.blocks: x = block(x)
        return self.head(self.norm(x))


torch.manual_seed(0)
model, words = GPT(), torch.randint(WORDS, (BATCH, LENGTH + 1))
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
before, after = words[:, :-1], words[:, 1:].flatten()


def step():
    optimizer.zero_grad()
    F.cross_entropy(model(before).flatten(0, 1), after).backward()
    optimizer.step()


def under(make, each=lambda h: None):
    "Ten steps with something on. It is put on before them and taken off after them."
    def work():
        with make() as h:
            for _ in range(STEPS):
                step()
                each(h)
    return work


STEPS = 10


def plain():
    for _ in range(STEPS): step()


def weights(call): return hl.attention_weights(*call.inputs, **call.kwargs)
def end(a): a.step()


def with_torchlens(): torchlens.trace(model, before)


def with_nnsight():
    traced = nnsight.NNsight(model)
    with traced.trace(before):
        nnsight.save([block.source.F_scaled_dot_product_attention_0.output for block in traced.blocks])


def with_hooklab():
    with hl.hook_calls(model, ATTENTION): model(before)


def measure(rounds: str = "11"):
    rounds = int(rounds)
    steps = ratios(plain, {
        "hooklab, copies of q, k, v and output": under(lambda: hl.hook_calls(model, ATTENTION)),
        "hooklab, weights of all heads": under(lambda: hl.hook_calls(model, ATTENTION, f=weights)),
        "hooklab, statistics of a sample": under(lambda: hl.AttentionStats().on(model), end),
        "hooklab, statistics of all queries": under(lambda: hl.AttentionStats(sample=None).on(model), end),
        "hooklab, statistics of all, every 10": under(lambda: hl.AttentionStats(sample=None, every=10).on(model), end),
    }, rounds)
    with torch.no_grad():
        others = {"hooklab": with_hooklab, "torchlens": with_torchlens, "nnsight": with_nnsight}
        passes = ratios(lambda: model(before), others, 7)
    return {"attention in a training step of a GPT, to the step without": steps,
            "attention in one pass of a GPT, attached and removed, to the pass without": passes}
