"""The encoding of positions is worked out and not added to the words.

The report: in an example of a transformer the sum of words and encoding is not assigned, so the encoding has no effect.
The merged change puts it to use; a maintainer thanked for it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "Lightning-AI/pytorch-lightning#20099", 2024
AREA, CAUSE = "structure", "input unused"
TRUE = set()
PLACE = ("positions",)

words, length = 16, 8


class Positions(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        at = torch.arange(length)[:, None]*(-torch.arange(0, size, 2)/size*6).exp()
        self.register_buffer("waves", torch.stack([at.sin(), at.cos()], -1).flatten(1))
        self.dropout, self.repaired = nn.Dropout(.05), repaired

    def forward(self, x):
        moved = x + self.waves[:x.shape[1]]
        return self.dropout(moved if self.repaired else x)


class Language(nn.Module):
    "Encoder and decoder; the decoder gets the words before the one it has to tell."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.size, self.word = size, nn.Embedding(words, size)
        nn.init.uniform_(self.word.weight, -.1, .1)
        self.positions = Positions(size, repaired)
        self.transformer = nn.Transformer(size, 2, 1, 1, 2*size, dropout=.05, batch_first=True)
        self.last = nn.Linear(size, words)

    def forward(self, x, y):
        mask = nn.Transformer.generate_square_subsequent_mask(y.shape[1])
        x, y = (self.positions(self.word(z)*self.size**.5) for z in (x, y))
        return self.last(self.transformer(x, y, tgt_mask=mask, tgt_is_causal=True)).log_softmax(-1).transpose(1, 2)


def sentences(n: int, meaning):
    "A sentence and its translation, word by word in the same order."
    x = torch.randint(1, words, (n, length))
    y = meaning[x]
    return x, torch.cat([torch.zeros(n, 1, dtype=torch.long), y[:, :-1]], 1), y


def build(repaired: bool) -> Parts:
    meaning = torch.cat([torch.zeros(1), 1 + torch.randperm(words - 1)]).long()
    model = Language(32, repaired)
    data = [sentences(32, meaning) for _ in range(60)]
    def call(model, batch): return F.nll_loss(model(*batch[:2]), batch[2])
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, call=call, valid=[sentences(200, meaning)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(5):
            parts.model.train()
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    with torch.no_grad(): return (parts.call(parts.model, parts.valid[0])/torch.tensor(float(words)).log()).item()
