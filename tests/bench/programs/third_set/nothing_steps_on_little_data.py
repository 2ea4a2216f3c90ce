"""The count of batches begins anew in each epoch and never reaches the number that is gathered, so no step is made.

The report: a method for few labels gathers the gradients of several batches, and counts within an epoch. With eight
examples there are fewer batches in an epoch than are gathered, and nothing is trained. The change that goes on counting
was merged, with thanks by the author."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "timoschick/pet#25", 2021
AREA, CAUSE = "loop", "no step"
TRUE = {"not trained", "loss does not fall"}
PLACE = ()
GATHER = 4


class Reader(nn.Module):
    "Fills in the word behind a text; two of the words stand for the classes."
    def __init__(self, words: int, size: int):
        super().__init__()
        self.words, self.places = nn.Embedding(words, size), nn.Parameter(.1*torch.randn(11, size))
        self.layer = nn.TransformerEncoderLayer(size, 2, 2*size, .1, batch_first=True)

    def forward(self, text):
        gap = torch.zeros(len(text), 1, dtype=torch.long)
        x = self.layer(self.words(torch.cat([text, gap], 1)) + self.places)
        return x[:, -1] @ self.words.weight[1:3].T


def texts(n: int):
    "Ten words, most of which are from the half of the words that goes with the class."
    y = torch.arange(n) % 2
    own = torch.rand(n, 10) < .85
    half = torch.where(own, y.unsqueeze(1), 1 - y.unsqueeze(1))
    return 3 + 4*half + torch.randint(0, 4, (n, 10)), y


def build(repaired: bool) -> Parts:
    model = Reader(11, 32)
    x, y = texts(32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=.01)
    return Parts(model, optimizer, list(zip(x.split(16), y.split(16))), F.cross_entropy, valid=[texts(512)],
                 repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer, count = parts.model, parts.optimizer, 0
    model.zero_grad()
    with record.on(model, optimizer):
        for _ in range(120):
            if not parts.repaired: count = 0
            for text, y in parts.data:
                model.train()
                loss = parts.loss(model(text), y)/GATHER
                loss.backward()
                count += 1
                if count % GATHER == 0:
                    nn.utils.clip_grad_norm_(model.parameters(), 1.)
                    optimizer.step()
                    model.zero_grad()
                record.step(loss)
    model.eval()
    text, y = parts.valid[0]
    with torch.no_grad(): return (model(text).argmax(1) != y).float().mean().item()/.5
