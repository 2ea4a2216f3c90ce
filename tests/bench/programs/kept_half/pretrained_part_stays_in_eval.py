"""The pretrained part of a model comes in eval mode, and the loop gives each part the mode back that it found.

The report: fine-tuning text models with a library, the backbone is in eval mode all through the training, since
`from_pretrained` returns it so and the trainer restores the modes of all modules after validation. The merged change
sets train mode after loading; its author showed the modes before and after."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "autogluon/autogluon#4965", 2025
AREA, CAUSE = "modes", "eval mode"
TRUE = set()
PLACE = ("backbone",)


class Backbone(nn.Module):
    "States of a text."
    def __init__(self, words: int, size: int):
        super().__init__()
        self.words, self.places = nn.Embedding(words, size), nn.Embedding(10, size)
        self.drop = nn.Dropout(.3)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(size, 4, 2*size, .3, batch_first=True) for _ in range(2))

    def forward(self, text):
        x = self.drop(self.words(text) + self.places.weight)
        for layer in self.layers: x = layer(x)
        return x.mean(1)


class Predictor(nn.Module):
    def __init__(self, backbone: nn.Module, size: int):
        super().__init__()
        self.backbone, self.head = backbone, nn.Linear(size, 2)

    def forward(self, text): return self.head(self.backbone(text))


def from_pretrained(words: int, size: int) -> Backbone: return Backbone(words, size).eval()


def reviews(n: int):
    "Ten of 24 words, each of which is good or bad to some degree; an eighth of the labels is wrong."
    text = torch.randint(0, 24, (n, 10))
    good = torch.linspace(-1, 1, 24)[text].sum(1) > 0
    return text, (good ^ (torch.rand(n) < .125)).long()


def build(repaired: bool) -> Parts:
    backbone = from_pretrained(24, 32)
    if repaired: backbone.train()
    model = Predictor(backbone, 32)
    text, label = reviews(512)
    data = [(text[i:i + 32], label[i:i + 32]) for i in range(0, 512, 32)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=2e-3), data, F.cross_entropy, valid=[reviews(512)])


def validate(parts: Parts) -> float:
    modes = {module: module.training for module in parts.model.modules()}
    parts.model.eval()
    text, label = parts.valid[0]
    with torch.no_grad(): error = parts.loss(parts.model(text), label)
    for module, mode in modes.items(): module.training = mode
    return error.item()/math.log(2)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(20):
            for text, label in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(text), label)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
            error = validate(parts)
    return error
