"""A tagger has a layer for the letters of a word, but its result is not passed on with the vector of the word.

The report: since an earlier change the embeddings of letters and of parts of words were ignored. The author mended it,
marked the change as one for the quality, and trained all models anew."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "hopsparser/hopsparser#44", 2021
AREA, CAUSE = "structure", "input unused"
TRUE = {"never ran", "not trained"}
PLACE = ("letters",)

known, signs, unknown, tags = 31, 10, 0, 5


class Letters(nn.Module):
    "A vector for the letters of each word."
    def __init__(self, size: int):
        super().__init__()
        self.sign, self.reader = nn.Embedding(signs, size), nn.GRU(size, size, batch_first=True)

    def forward(self, letters):
        _, state = self.reader(self.sign(letters.flatten(0, 1)))
        return state[0].view(*letters.shape[:2], -1)


class Tagger(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.word, self.letters = nn.Embedding(known, size), Letters(size)
        self.reader = nn.LSTM(size, size, batch_first=True, bidirectional=True)
        self.last = nn.Linear(2*size, tags)

    def forward(self, words, letters):
        x = self.word(words)
        if self.repaired: x = x + self.letters(letters)
        return self.last(self.reader(F.dropout(x, .1, self.training))[0]).transpose(1, 2)


def texts(n: int, endings):
    "Half of the words are in no list; how a word ends tells its tag, unless the word before is of the first kind."
    letters = torch.randint(0, signs, (n, 8, 4))
    words = torch.where(torch.rand(n, 8) < .5, 1 + letters[..., -1]*3 + letters[..., 0] % 3, unknown)
    tag = endings[letters[..., -1]]
    before = F.pad(tag[:, :-1], (1, 0), value=1)
    return words, letters, torch.where(before == 0, (tag + 1) % tags, tag)


def build(repaired: bool) -> Parts:
    endings = torch.arange(signs) % tags
    model = Tagger(24, repaired)
    data = [texts(32, endings) for _ in range(40)]

    def call(model, batch):
        words, letters, tag = batch
        return F.cross_entropy(model(words, letters), tag)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3), data, call=call, valid=[texts(300, endings)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            parts.model.train()
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 5.)
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    with torch.no_grad(): return (parts.call(parts.model, parts.valid[0])/torch.tensor(float(tags)).log()).item()
