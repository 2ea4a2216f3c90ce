"""The projection of texts and their places are made with `torch.empty` and never filled, so they are what memory was.

The report: parts of a model for pictures and texts are made by `torch.empty`, which does not matter when weights are
loaded, and fails when it is trained from scratch. The author of the model opened the report and mended it after
another researcher had found it. Here the memory is fresh, that is, zero, in each run."""
import ctypes

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "openai/CLIP#15", 2021
AREA, CAUSE = "initialisation", "not initialised"
TRUE = {"NaN or Inf", "constant output", "samples alike"}
PLACE = ("projection", "places")


def fresh(*shape: int) -> nn.Parameter:
    "What `torch.empty` gives is chance; a fresh page of memory holds zeros."
    parameter = nn.Parameter(torch.empty(*shape))
    ctypes.memset(parameter.data_ptr(), 0, parameter.numel()*parameter.element_size())
    return parameter


class Pairs(nn.Module):
    "Similarities of all pictures and all texts of a batch."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.picture = nn.Sequential(nn.Conv2d(3, size, 3, 2, 1), nn.ReLU(), nn.Conv2d(size, 2*size, 3, 2, 1),
                                     nn.ReLU(), nn.Flatten(), nn.Linear(8*size, 16))
        self.token = nn.Embedding(16, size)
        nn.init.normal_(self.token.weight, std=.02)
        self.places, self.projection = fresh(4, size), fresh(size, 16)
        self.layer = nn.TransformerEncoderLayer(size, 2, 4*size, 0., batch_first=True, norm_first=True)
        self.after = nn.LayerNorm(size)
        self.scale = nn.Parameter(torch.tensor(1/.07).log())
        if repaired:
            nn.init.normal_(self.places, std=.01)
            nn.init.normal_(self.projection, std=size**-.5)

    def forward(self, picture, text):
        seen = self.picture(picture)
        read = self.after(self.layer(self.token(text) + self.places))[:, -1] @ self.projection
        seen, read = seen/seen.norm(dim=1, keepdim=True), read/read.norm(dim=1, keepdim=True)
        return self.scale.exp()*seen @ read.T


def pairs(n: int):
    "A patch of one of five colours in one of four corners, and a text that says so; its last token ends the text."
    colour, corner = torch.randint(0, 5, (n,)), torch.randint(0, 4, (n,))
    colours = torch.tensor([[1., 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1]])
    where = F.one_hot(corner, 4).float().view(n, 1, 2, 2).repeat_interleave(4, 2).repeat_interleave(4, 3)
    text = torch.stack([torch.randint(9, 15, (n,)), colour, 5 + corner, torch.full((n,), 15)], 1)
    return where*colours[colour][:, :, None, None] + .3*torch.randn(n, 3, 8, 8), text


def both_ways(similarity):
    own = torch.arange(len(similarity))
    return (F.cross_entropy(similarity, own) + F.cross_entropy(similarity.T, own))/2


def build(repaired: bool) -> Parts:
    model = Pairs(16, repaired)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=.1)
    return Parts(model, optimizer, [pairs(16) for _ in range(250)],
                 call=lambda model, batch: both_ways(model(*batch)), valid=[pairs(512)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for batch in parts.data:
            parts.optimizer.zero_grad()
            loss = parts.call(parts.model, batch)
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    picture, text = parts.valid[0]
    with torch.no_grad(): found = parts.model(picture, text).argmax(1)
    return (text[found][:, 1:] != text[:, 1:]).any(1).float().mean().item()
