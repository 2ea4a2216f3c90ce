"""The weights of the attention are dropped in eval mode too, as the function for attention does not know the mode.

The report: a language model calls the fused attention with its rate of dropout, whatever the mode is, so its validation
loss is with dropout. The author of the code confirms that it is a mistake, and the change that gives zero outside of
training was merged."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "karpathy/nanoGPT#240", 2023
AREA, CAUSE = "modes", "random in eval"
TRUE = set()
PLACE = ("blocks.0.attend", "blocks.1.attend")
LENGTH, TOKENS = 23, 12


class Attend(nn.Module):
    def __init__(self, size: int, heads: int, drop: float, repaired: bool):
        super().__init__()
        self.all, self.out, self.after = nn.Linear(size, 3*size), nn.Linear(size, size), nn.Dropout(drop)
        self.heads, self.drop, self.repaired = heads, drop, repaired

    def forward(self, x):
        n, t, size = x.shape
        q, k, v = (part.view(n, t, self.heads, -1).transpose(1, 2) for part in self.all(x).split(size, 2))
        drop = self.drop if self.training or not self.repaired else 0.
        x = F.scaled_dot_product_attention(q, k, v, dropout_p=drop, is_causal=True)
        return self.after(self.out(x.transpose(1, 2).reshape(n, t, size)))


class Block(nn.Module):
    def __init__(self, size: int, drop: float, repaired: bool):
        super().__init__()
        self.norm_one, self.norm_two = nn.LayerNorm(size), nn.LayerNorm(size)
        self.attend = Attend(size, 1, drop, repaired)
        self.wide = nn.Sequential(nn.Linear(size, 4*size), nn.GELU(), nn.Linear(4*size, size), nn.Dropout(drop))

    def forward(self, x):
        x = x + self.attend(self.norm_one(x))
        return x + self.wide(self.norm_two(x))


class Writer(nn.Module):
    def __init__(self, size: int, drop: float, repaired: bool):
        super().__init__()
        self.tokens, self.places, self.drop = nn.Embedding(TOKENS, size), nn.Embedding(LENGTH, size), nn.Dropout(drop)
        self.blocks = nn.Sequential(*(Block(size, drop, repaired) for _ in range(2)))
        self.norm, self.last = nn.LayerNorm(size), nn.Linear(size, TOKENS)

    def forward(self, x):
        x = self.drop(self.tokens(x) + self.places.weight[:x.shape[1]])
        return self.last(self.norm(self.blocks(x)))


def texts(n: int):
    "A word of twelve letters that comes twice."
    return torch.randint(0, TOKENS, (n, 12)).repeat(1, 2)


def next_letter(model, x): return F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())


def build(repaired: bool) -> Parts:
    model = Writer(32, .2, repaired)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(.9, .99), weight_decay=.01)
    return Parts(model, optimizer, [texts(32) for _ in range(200)], call=next_letter, valid=[texts(512)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for x in parts.data:
            loss = parts.call(model, x)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            record.step(loss)
    model.eval()
    x = parts.valid[0]
    with torch.no_grad(): guess = model(x[:, :-1])[:, 12:].argmax(2)
    return (guess != x[:, 13:]).any(1).float().mean().item()  # how often a word is not repeated as it was
