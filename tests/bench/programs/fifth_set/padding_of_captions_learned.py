"""Captions are filled up with zeros, a number is named that the loss should ignore, and the loss is not told of it.

The report: the model for captions and images has an argument for what is to be ignored and never uses it, so the
padding of the text counts in the loss. The maintainer confirmed it and mended it."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "lucidrains/DALLE-pytorch#57", 2021
AREA, CAUSE = "loss and task", "padding counts"
TRUE = set()
PLACE = ()

words, patches, longest, area, size = 24, 12, 48, 6, 32


class Painter(nn.Module):
    "A transformer writes the caption and then the patches of the image, from left to right."
    def __init__(self, repaired: bool):
        super().__init__()
        self.ignore_index = 0
        self.repaired = repaired
        self.words, self.patches = nn.Embedding(words, size), nn.Embedding(patches, size)
        self.place = nn.Parameter(.02*torch.randn(longest + area, size))
        layer = nn.TransformerEncoderLayer(size, 4, 2*size, 0., batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.last = nn.Sequential(nn.LayerNorm(size), nn.Linear(size, words + patches))
        self.register_buffer("ahead", torch.full((longest + area, longest + area), float("-inf")).triu(1))

    def forward(self, text, image):
        "Scores of what comes next; at places of the text only words can be next, and patches behind it."
        start = torch.zeros_like(text[:, :1])
        x = torch.cat([self.words(torch.cat([start, text], 1)), self.patches(image[:, :-1])], 1) + self.place
        scores = self.last(self.layers(x, mask=self.ahead))
        is_word = torch.arange(words + patches) < words
        of_text = torch.arange(longest + area) < longest
        return scores.masked_fill(is_word != of_text[:, None], -1e9)


def both(text, image): return torch.cat([text, image + words], 1)


def next_loss(model, batch):
    text, image = batch
    ignore = {"ignore_index": model.ignore_index} if model.repaired else {}
    return F.cross_entropy(model(text, image).transpose(1, 2), both(text, image), **ignore)


def captions(n: int, follow, looks):
    "Two to four words, each of which asks for the next; the image shows them in order, the last one again and again."
    length, text = torch.randint(2, 5, (n,)), [torch.randint(1, words, (n,))]
    for _ in range(3): text.append(follow[text[-1], torch.randint(0, 2, (n,))])
    text = torch.stack(text, 1)
    image = looks[text.gather(1, torch.minimum(torch.arange(area).expand(n, -1), length[:, None] - 1))]
    text = text*(torch.arange(4) < length[:, None])
    return F.pad(text, (0, longest - 4)), image


def build(repaired: bool) -> Parts:
    follow, looks = torch.randint(1, words, (words, 2)), torch.randint(0, patches, (words,))
    model = Painter(repaired)
    data = [captions(16, follow, looks) for _ in range(120)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-3), data, call=next_loss,
                 valid=[captions(200, follow, looks)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for batch in parts.data:
            loss = parts.call(parts.model, batch)
            loss.backward()
            nn.utils.clip_grad_norm_(parts.model.parameters(), .5)
            parts.optimizer.step()
            parts.optimizer.zero_grad()
            record.step(loss)
    text, image = parts.valid[0]
    with torch.no_grad(): scores = parts.model(text, image).transpose(1, 2)
    loss = F.cross_entropy(scores, both(text, image), reduction="none")
    return loss[:, :longest][text > 0].mean().item()/math.log(words)
