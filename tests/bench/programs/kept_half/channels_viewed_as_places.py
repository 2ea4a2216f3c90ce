"""The features of an image are brought from (channels, places) to (places, channels) by `view`, which mixes the two.

The report: a `permute` has to come before the `view`. The author agreed, saw that the features had stood in for the
places, corrected it and trained anew."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "fawazsammani/knowing-when-to-look-adaptive-attention#6", 2019
AREA, CAUSE = "structure", "places mixed up"
TRUE = set()
PLACE = ("encoder",)

kinds, start = 6, 6


class Encoder(nn.Module):
    "An image as a list of places with features."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.layers = nn.Sequential(nn.Conv2d(3, size, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                                    nn.Conv2d(size, size, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))

    def forward(self, image):
        x = self.layers(image)
        n, size, high, wide = x.shape
        if self.repaired: x = x.permute(0, 2, 3, 1)
        return x.reshape(n, high*wide, size)


class Captioner(nn.Module):
    "A recurrent cell that looks at the places and names one thing after the other."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.encoder = Encoder(size, repaired)
        self.word = nn.Embedding(kinds + 1, size)
        self.key, self.query = nn.Linear(size, size), nn.Linear(size, size)
        self.cell, self.last = nn.GRUCell(2*size, size), nn.Linear(size, kinds)

    def forward(self, image, words):
        places = self.encoder(image)
        state, out = places.mean(1), []
        for word in words.unbind(1):
            weights = (self.key(places) @ self.query(state)[..., None]).softmax(1)
            state = self.cell(torch.cat([self.word(word), (weights*places).sum(1)], -1), state)
            out.append(self.last(state))
        return torch.stack(out, 2)


def scenes(n: int, looks):
    "Three things of different kinds on a dark field; the caption names them in the order of the kinds."
    kind = torch.rand(n, kinds).argsort(1)[:, :3].sort(1).values
    board = torch.full((n, 16), kinds).scatter(1, torch.rand(n, 16).argsort(1)[:, :3], kind)
    cells = torch.cat([looks, torch.zeros(1, 3, 4, 4)])[board].unflatten(1, (4, 4))
    return cells.permute(0, 3, 1, 4, 2, 5).reshape(n, 3, 16, 16) + .3*torch.randn(n, 3, 16, 16), kind


def build(repaired: bool) -> Parts:
    looks = torch.randn(kinds, 3, 4, 4)
    model = Captioner(32, repaired)
    image, kind = scenes(1024, looks)
    data = [(image[i:i + 64], kind[i:i + 64]) for i in range(0, 1024, 64)]

    def call(model, batch):
        image, kind = batch
        before = F.pad(kind[:, :-1], (1, 0), value=start)
        return F.cross_entropy(model(image, before), kind)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, call=call, valid=[scenes(512, looks)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(12):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), 5.)
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad(): return (parts.call(parts.model, parts.valid[0])/torch.tensor(kinds/2.).log()).item()
