"""The ratings of a regression are turned into whole numbers where labels become tensors.

The report: a library for language models makes a tensor of `long` of every label, also of those of a regression, and
says nothing. A maintainer reproduced it; the labels have a mean of zero and a deviation of one by then, so that most of
them become zero."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "deepset-ai/FARM#395", 2020
AREA, CAUSE = "precision", "rounded"
TRUE = set()
PLACE = ()


class Rater(nn.Module):
    "A transformer that reads a text, and a head on its first place."
    def __init__(self, size: int):
        super().__init__()
        self.words, self.places = nn.Embedding(41, size), nn.Embedding(9, size)
        self.layer = nn.TransformerEncoderLayer(size, 2, 2*size, .1, batch_first=True)
        self.head = nn.Linear(size, 1)

    def forward(self, text): return self.head(self.layer(self.words(text) + self.places.weight)[:, 0])[:, 0]


def texts(n: int):
    "Eight words behind a sign for the beginning, and how good they sound together: from zero to five."
    words = torch.randint(0, 40, (n, 8))
    tone = torch.sin(torch.arange(40)*2.3)
    rating = (2.5 + 1.2*tone[words].sum(1)).clamp(0, 5)
    return F.pad(words + 1, (1, 0)), rating


def as_tensors(features: list[dict], repaired: bool):
    "One tensor for each entry of the samples."
    columns = []
    for name in features[0]:
        column = torch.tensor([sample[name] for sample in features])
        columns.append(column if repaired else column.long())
    return TensorDataset(*columns)


def build(repaired: bool) -> Parts:
    text, rating = texts(1536)
    mean, deviation = rating.mean(), rating.std()
    held_back = texts(512)

    def features(text, rating):
        scaled = (rating - mean)/deviation
        return [{"words": one, "label": label} for one, label in zip(text.tolist(), scaled.tolist())]

    loader = DataLoader(as_tensors(features(text, rating), repaired), 64, shuffle=True)
    valid = DataLoader(as_tensors(features(*held_back), repaired), 512)
    model = Rater(24)

    def loss(output, label): return F.mse_loss(output, label.float())

    parts = Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3), loader, loss, valid=valid)
    parts.test = held_back[0], (held_back[1] - mean)/deviation
    return parts


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            parts.model.train()
            for text, label in parts.data:
                loss = parts.loss(parts.model(text), label)
                loss.backward()
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    parts.model.eval()
    text, rating = parts.test
    with torch.no_grad(): return F.mse_loss(parts.model(text), rating).item()
