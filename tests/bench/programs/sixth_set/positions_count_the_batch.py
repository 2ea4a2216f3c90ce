"""The positions of a transformer are counted along the batch, so all tokens of a sequence get the same one.

The report, on the code of a course: after broadcasting, every token of a sequence has the same positional encoding; the
range has to be that of the other dimension. The teacher updated the code."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "cmu-l3/anlp-fall2025-code#1", 2026
AREA, CAUSE = "structure", "wrong axis"
TRUE = {"samples leak"}
PLACE = ("place",)

signs, length = 10, 12


class Block(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.attention = nn.MultiheadAttention(size, 4, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(size, 2*size), nn.ReLU(), nn.Linear(2*size, size))
        self.norms = nn.ModuleList([nn.LayerNorm(size) for _ in range(2)])

    def forward(self, x, mask):
        y = self.norms[0](x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.feed(self.norms[1](x))


class Decoder(nn.Module):
    "A language model of signs."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.embed, self.place = nn.Embedding(signs, size), nn.Embedding(64, size)
        self.blocks = nn.ModuleList([Block(size) for _ in range(2)])
        self.last = nn.Linear(size, signs)

    def forward(self, x):
        at = torch.arange(x.shape[1])[None] if self.repaired else torch.arange(x.shape[0])[:, None]
        hidden = self.embed(x) + self.place(at)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        for block in self.blocks: hidden = block(hidden, mask)
        return self.last(hidden)


def words(n: int):
    "Random signs, and from the middle on those of the first half again, in the same order."
    first = torch.randint(signs, (n, length//2 + 1))
    return torch.cat([first, first[:, :length//2]], 1)


def build(repaired: bool) -> Parts:
    model = Decoder(32, repaired)
    def call(model, word): return F.cross_entropy(model(word[:, :-1]).mT, word[:, 1:])
    data = [words(64) for _ in range(60)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3), data, call=call, valid=[words(64)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            for word in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, word)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    word = parts.valid[0]
    with torch.no_grad(): logits = parts.model(word[:, :-1])[:, length//2:]
    return (F.cross_entropy(logits.mT, word[:, 1 + length//2:])/torch.tensor(float(signs)).log()).item()
