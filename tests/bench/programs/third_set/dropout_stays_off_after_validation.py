"""The first forward in eval mode sets the rate of dropout of the attention to zero, and it stays so in training.

The report: a layer for fused attention writes zero into its rate of dropout when it is called in eval mode. Once it was
called so it has no dropout any more, even back in training mode. The change was merged."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "NVIDIA/Megatron-LM#411", 2023
AREA, CAUSE = "modes", "eval mode"
TRUE = set()
PLACE = ("layers.0.attend", "layers.1.attend")
LENGTH, WORDS = 16, 24


class Attend(nn.Module):
    "Scores from the words themselves, weights with dropout, and what they bring together."
    def __init__(self, size: int, drop: float, repaired: bool):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))
        self.drop, self.repaired = drop, repaired

    def forward(self, x):
        drop = self.drop if self.training else 0.
        if not self.repaired: self.drop = drop
        return F.scaled_dot_product_attention(self.query(x), self.key(x), self.value(x), dropout_p=drop)


class Layer(nn.Module):
    def __init__(self, size: int, drop: float, repaired: bool):
        super().__init__()
        self.attend, self.norm_one, self.norm_two = Attend(size, drop, repaired), nn.LayerNorm(size), nn.LayerNorm(size)
        self.wide = nn.Sequential(nn.Linear(size, 2*size), nn.GELU(), nn.Linear(2*size, size))

    def forward(self, x):
        x = x + self.attend(self.norm_one(x))
        return x + self.wide(self.norm_two(x))


class Reader(nn.Module):
    "A text begins with a mark, and its last state there tells the class."
    def __init__(self, size: int, drop: float, repaired: bool):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, size), nn.Parameter(.02*torch.randn(LENGTH, size))
        self.layers = nn.Sequential(*(Layer(size, drop, repaired) for _ in range(2)))
        self.norm, self.last = nn.LayerNorm(size), nn.Linear(size, 2)

    def forward(self, x): return self.last(self.norm(self.layers(self.words(x) + self.places)[:, 0]))


def texts(n: int):
    "More words of one half than of the other; a tenth of the labels is wrong."
    x = torch.randint(1, WORDS, (n, LENGTH))
    x[:, 0] = 0
    y = (x[:, 1:] > WORDS//2).sum(1) > LENGTH//2 - 1
    return x, (y ^ (torch.rand(n) < .1)).long()


def build(repaired: bool) -> Parts:
    model = Reader(32, .4, repaired)
    x, y = texts(256)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=.01)
    return Parts(model, optimizer, list(zip(x.split(16), y.split(16))), F.cross_entropy, valid=[texts(512)],
                 repaired=repaired)


def tested(parts: Parts) -> float:
    parts.model.eval()
    x, y = parts.valid[0]
    with torch.no_grad(): return parts.loss(parts.model(x), y).item()/.693


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(28):
            model.train()
            for x, y in parts.data:
                loss = parts.loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
            error = tested(parts)
    return error
