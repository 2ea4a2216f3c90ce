"""Small sources of text are repeated to the size of the largest, and then the validation set is taken at random.

The report: with sources that are interleaved by repeating them, rows of the validation set are in the training set,
too; the maintainer measured up to all of them, and takes the validation set out of each source before it is repeated.
As the loop keeps the weights with the lowest validation loss, it keeps those that know the texts by heart."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "MakazhanAlpamys/Soup#680", 2026
AREA, CAUSE = "data and labels", "samples repeat"
TRUE = {"validation repeats training"}
PLACE = ()

words, length = 16, 12
follows = torch.randint(0, words, (2, words, 2), generator=torch.Generator().manual_seed(0))


class Language(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.embed, self.place = nn.Embedding(words, size), nn.Embedding(length, size)
        layer = nn.TransformerEncoderLayer(size, 4, 4*size, 0., batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(size, words)

    def forward(self, x):
        mask = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        return self.head(self.blocks(self.embed(x) + self.place.weight[:x.shape[1]], mask=mask)).transpose(1, 2)


def source(n: int, which: int):
    "Texts in which most words are one of two that may follow the word before."
    text = [torch.randint(0, words, (n,))]
    for _ in range(length):
        known = follows[which, text[-1], torch.randint(0, 2, (n,))]
        text.append(known.where(torch.rand(n) < .7, torch.randint(0, words, (n,))))
    return torch.stack(text, 1)


def divided(rows, share: float):
    rows = rows[torch.randperm(len(rows))]
    held = int(share*len(rows))
    return rows[held:], rows[:held]


def interleaved(sources: list):
    "As many rows of each as the largest has."
    most = max(map(len, sources))
    return torch.cat([rows.repeat(-(-most//len(rows)), 1)[:most] for rows in sources])


def build(repaired: bool) -> Parts:
    sources = [source(200, 0), source(40, 1)]
    if repaired:
        parts = [divided(rows, .2) for rows in sources]
        trained, held = interleaved([part[0] for part in parts]), torch.cat([part[1] for part in parts])
    else: trained, held = divided(interleaved(sources), .2)
    trained = trained[torch.randperm(len(trained))]
    model = Language(32)
    data = [(rows[:, :-1], rows[:, 1:]) for rows in trained.split(16)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    return Parts(model, optimizer, data, F.cross_entropy, valid=[(held[:, :-1], held[:, 1:])])


def train(parts: Parts, record) -> float:
    lowest, best = float("inf"), None
    with record.on(parts.model, parts.optimizer):
        for _ in range(14):
            parts.model.train()
            for x, y in parts.data:
                loss = parts.loss(parts.model(x), y)
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 1.)
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
            parts.model.eval()
            with torch.no_grad(): found = sum(parts.loss(parts.model(x), y).item() for x, y in parts.valid)
            if found < lowest: lowest, best = found, copy.deepcopy(parts.model.state_dict())
    parts.model.load_state_dict(best)
    new = torch.cat([source(200, 0), source(200, 1)])  # texts that are in neither set
    with torch.no_grad():
        return (parts.loss(parts.model(new[:, :-1]), new[:, 1:])/torch.tensor(float(words)).log()).item()
