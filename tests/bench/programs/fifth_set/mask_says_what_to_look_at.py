"""A mask that is true for later words goes to an attention that reads it as "may be looked at".

The report, by the author of a book on language models: the mask was made for `masked_fill`, where true means hidden,
and given to `scaled_dot_product_attention`, where it means the opposite. The merged change inverts it and adds a test
that later words do not change earlier outputs."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "rasbt/LLMs-from-scratch#1062", 2026
AREA, CAUSE = "structure", "later places are seen"
TRUE = set()
PLACE = ("blocks.0.attention", "blocks.1.attention")

words, length = 20, 16


class Attention(nn.Module):
    def __init__(self, size: int, heads: int, repaired: bool):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(size, 3*size, bias=False), nn.Linear(size, size)
        mask = torch.triu(torch.ones(length, length), diagonal=1).bool()
        self.register_buffer("mask", ~mask if repaired else mask)

    def forward(self, x):
        n, places, size = x.shape
        q, k, v = self.qkv(x).view(n, places, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask[:places, :places])
        return self.out(x.transpose(1, 2).reshape(n, places, size))


class Block(nn.Module):
    def __init__(self, size: int, heads: int, repaired: bool):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(size), Attention(size, heads, repaired)
        self.norm2 = nn.LayerNorm(size)
        self.wide = nn.Sequential(nn.Linear(size, 4*size), nn.GELU(), nn.Linear(4*size, size))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.wide(self.norm2(x))


class Language(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.word, self.place = nn.Embedding(words, size), nn.Embedding(length, size)
        self.blocks = nn.Sequential(*[Block(size, 2, repaired) for _ in range(2)])
        self.norm, self.last = nn.LayerNorm(size), nn.Linear(size, words, bias=False)

    def forward(self, x):
        x = self.word(x) + self.place(torch.arange(x.shape[1]))
        return self.last(self.norm(self.blocks(x))).transpose(1, 2)


def texts(n: int, follows):
    "Each word is followed by one of three, the likeliest of them mostly."
    text = [torch.randint(0, words, (n,))]
    for _ in range(length): text.append(follows[text[-1], torch.multinomial(torch.tensor([.8, .1, .1]), n, True)])
    text = torch.stack(text, 1)
    return text[:, :-1], text[:, 1:]


def build(repaired: bool) -> Parts:
    follows = torch.stack([torch.randperm(words)[:3] for _ in range(words)])
    model = Language(32, repaired)
    data = [texts(16, follows) for _ in range(60)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=.1), data, F.cross_entropy,
                 valid=[texts(100, follows)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            parts.model.train()
            for x, y in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), y)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, y = parts.valid[0]
    parts.model.eval()
    with torch.no_grad():  # as in writing: only what was written so far is there
        losses = [parts.loss(parts.model(x[:, :i])[..., -1], y[:, i - 1]) for i in range(1, length + 1)]
    return (sum(losses)/len(losses)/torch.tensor(float(words)).log()).item()
