"""The scale of the similarities of images and texts begins at e, not at 14: its logarithm begins at 1.

The report: a model for images and texts was trained, and after two epochs the loss rose; the original begins the scale
at another value. A maintainer confirmed that a wrong first value can cause this, and it was changed."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "huggingface/transformers#13430", 2021
AREA, CAUSE = "initialisation", "weights too small"
TRUE = set()
PLACE = ("scale",)

words, length = 60, 4


class Clip(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.image = nn.Sequential(nn.Conv2d(3, size, 4, 4), nn.ReLU(), nn.Flatten(), nn.Linear(4*size, size))
        self.words, self.text = nn.Embedding(words, size), nn.GRU(size, size, batch_first=True)
        self.project = nn.Linear(size, size, bias=False)
        self.scale = nn.Parameter(torch.tensor(math.log(1/.07) if repaired else 1.))

    def forward(self, image, text):
        image = F.normalize(self.image(image), dim=1)
        text = F.normalize(self.project(self.text(self.words(text))[1][0]), dim=1)
        return image @ text.T*self.scale.exp()


def pairs(n: int, looks):
    "Each word of a text has a look, and the image is the sum of them."
    text = torch.randint(0, words, (n, length))
    return looks[text].sum(1) + torch.randn(n, 3, 8, 8), text


def build(repaired: bool) -> Parts:
    looks = torch.randn(words, 3, 8, 8)
    model = Clip(32, repaired)
    data = [pairs(64, looks) for _ in range(100)]

    def call(model, batch):
        alike, here = model(*batch), torch.arange(len(batch[0]))
        return (F.cross_entropy(alike, here) + F.cross_entropy(alike.T, here))/2
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=.1), data, call=call,
                 valid=[pairs(200, looks)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(3):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad(): return parts.call(parts.model, parts.valid[0]).item()/math.log(len(parts.valid[0][0]))
