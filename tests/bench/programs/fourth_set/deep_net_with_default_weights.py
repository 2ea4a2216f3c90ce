"""Thirteen convolutions without norms keep the default weights, each of which makes what it passes on smaller.

The report, in a forum: a plain VGG16 does not learn small pictures with the weights that PyTorch gives by default,
whatever the optimizer and its rate; gradients are zero in all layers. The author found that the same net learns when
its convolutions are filled as it fits ReLUs, which is the repair here."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "forums.fast.ai/broken-default-cnn-behaviour#48936", 2019
AREA, CAUSE = "initialisation", "weights too small"
TRUE = {"samples alike", "input unused", "constant output"}
PLACE = tuple(f"features.{i}" for i in range(29))


class VGG(nn.Module):
    "Five blocks of convolutions, each followed by a pooling, and three linear layers."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        layers, before = [], 3
        for block, depth in enumerate((2, 2, 3, 3, 3)):
            for _ in range(depth):
                layers += nn.Conv2d(before, size*min(2**block, 2), 3, padding=1), nn.ReLU()
                before = size*min(2**block, 2)
            if block < 3: layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Linear(4*before, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(),
                                        nn.Linear(32, 4))
        for layer in self.features:
            if repaired and isinstance(layer, nn.Conv2d):
                nn.init.kaiming_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)

    def forward(self, image): return self.classifier(self.features(image).flatten(1))


def images(n: int):
    "Stripes in one of four directions, of any colour."
    label = torch.randint(0, 4, (n,))
    row, column = torch.meshgrid(torch.arange(16.), torch.arange(16.), indexing="ij")
    turn = label[:, None, None]*torch.pi/4
    stripes = (1.2*(row*turn.cos() + column*turn.sin()) + 2*torch.pi*torch.rand(n, 1, 1)).sin()
    return stripes[:, None]*torch.randn(n, 3, 1, 1) + .3*torch.randn(n, 3, 16, 16), label


def build(repaired: bool) -> Parts:
    model = VGG(8, repaired)
    image, label = images(1024)
    data = [(image[i:i + 32], label[i:i + 32]) for i in range(0, 1024, 32)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-4), data, nn.CrossEntropyLoss(),
                 valid=[images(256)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(5):
            parts.model.train()
            for image, label in parts.data:
                loss = parts.loss(parts.model(image), label)
                loss.backward()
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    parts.model.eval()
    image, label = parts.valid[0]
    with torch.no_grad(): return (parts.model(image).argmax(1) != label).float().mean().item()
