"""A layer that merges the outputs of others keeps those in a plain list, so their parameters are nobody's.

The report, by a developer of the library, with high priority: a `ModuleList` is wanted in place of the list, so that
the parameters of the layers can be reached. The change was merged on the same day."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "asyml/texar-pytorch#72", 2019
AREA, CAUSE = "parameters", "not registered"
TRUE = {"not trained"}
PLACE = ("merge",)

words, length, classes = 300, 12, 6


class Merge(nn.Module):
    "Each of the layers gets the input; their outputs are joined."
    def __init__(self, layers: list[nn.Module], repaired: bool):
        super().__init__()
        self.layers = nn.ModuleList(layers) if repaired else layers

    def forward(self, x): return torch.cat([layer(x) for layer in self.layers], 1)


def windows(size: int, filters: int, width: int) -> nn.Module:
    return nn.Sequential(nn.Conv1d(size, filters, width), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten())


class TextClassifier(nn.Module):
    "Word vectors that came from elsewhere, convolutions of several widths side by side, and the largest of each."
    def __init__(self, size: int, filters: int, repaired: bool):
        super().__init__()
        self.register_buffer("vectors", torch.randn(words, size))
        self.merge = Merge([windows(size, filters, width) for width in (2, 3, 4)], repaired)
        self.drop, self.last = nn.Dropout(.2), nn.Linear(3*filters, classes)

    def forward(self, text): return self.last(self.drop(self.merge(self.vectors[text].transpose(1, 2))))


def texts(n: int):
    "The class is that of a pair of words that follow each other; each of the two is frequent alone, too."
    kind, at = torch.randint(classes, (n,)), torch.randint(length - 1, (n,))
    text = torch.randint(words, (n, length))
    text = torch.where(torch.rand(n, length) < .3, torch.randint(2*classes, (n, length)), text)
    rows = torch.arange(n)
    text[rows, at], text[rows, at + 1] = kind, classes + kind
    return text, kind


def build(repaired: bool) -> Parts:
    model = TextClassifier(32, 12, repaired)
    data = [texts(64) for _ in range(40)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, F.cross_entropy, valid=[texts(400)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            parts.model.train()
            for text, kind in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(text), kind)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    text, kind = parts.valid[0]
    with torch.no_grad(): logits = parts.model.eval()(text)
    return (parts.loss(logits, kind)/torch.tensor(float(classes)).log()).item()
