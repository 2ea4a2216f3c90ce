"""Both layers of a gate start at zero, so that it is closed, and stays so: neither gets a gradient from the other.

The report: a network that finds what a sentence names in an image starts its gates for language at zero. The author
computed the gradients of such a gate, which are all zero; with only the second layer at zero they are not."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "yz93/LAVT-RIS#25", 2023
AREA, CAUSE = "initialisation", "units alike"
TRUE = {"not trained", "gradients vanish", "activations vanish", "dead units", "input unused"}
PLACE = ("stages.0.gate", "stages.0.gate.0", "stages.0.gate.2", "stages.1.gate", "stages.1.gate.0", "stages.1.gate.2")


class Stage(nn.Module):
    "Features of the image, and what the words add to them, as far as the gate lets it through."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.image = nn.Sequential(nn.Conv2d(size, size, 3, padding=1), nn.ReLU())
        self.words, self.fuse = nn.Linear(size, size), nn.Linear(size, size)
        self.gate = nn.Sequential(nn.Linear(size, size, bias=False), nn.ReLU(), nn.Linear(size, size, bias=False),
                                  nn.Tanh())
        if not repaired: nn.init.zeros_(self.gate[0].weight)
        nn.init.zeros_(self.gate[2].weight)

    def forward(self, x, words):
        x = self.image(x).movedim(1, 3)
        told = self.fuse(x*self.words(words)[:, None, None])
        return (x + self.gate(told)*told).movedim(3, 1)


class Finder(nn.Module):
    "Where in an image is what the words say?"
    def __init__(self, words: int, size: int, repaired: bool):
        super().__init__()
        self.words, self.first = nn.Embedding(words, size), nn.Conv2d(3, size, 3, padding=1)
        self.stages = nn.ModuleList(Stage(size, repaired) for _ in range(2))
        self.last = nn.Conv2d(size, 1, 1)

    def forward(self, image, text):
        words, x = self.words(text).mean(1), self.first(image).relu()
        for stage in self.stages: x = stage(x, words)
        return self.last(x)[:, 0]


def scenes(n: int):
    "Four quarters of different colors, and the word for one of them."
    colors = torch.tensor([[1., -1, -1], [-1, 1, -1], [-1, -1, 1], [1, 1, -1]])
    order = torch.rand(n, 4).argsort(1)
    quarter = order.view(n, 2, 2).repeat_interleave(4, 1).repeat_interleave(4, 2)
    image = colors[quarter].movedim(3, 1) + .4*torch.randn(n, 3, 8, 8)
    word = torch.randint(0, 4, (n, 1))
    return image, word, (quarter == word[:, :, None]).float()


def build(repaired: bool) -> Parts:
    model = Finder(4, 24, repaired)
    data = list(zip(*(part.split(32) for part in scenes(1024))))

    def call(model, batch): return F.binary_cross_entropy_with_logits(model(*batch[:2]), batch[2])

    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3), data, call=call, valid=[scenes(256)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(10):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad(): return parts.call(parts.model, parts.valid[0]).item()/.5623
