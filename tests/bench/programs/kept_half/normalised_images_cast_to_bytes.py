"""Images are normalised first, and a step after that casts them to bytes.

The report: the resizing of a library casts to bytes, which spoils images that were normalised before and is hard to
find. The merged change takes the cast out."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "Deci-AI/super-gradients#1202", 2023
AREA, CAUSE = "precision", "rounded"
TRUE = {"inputs not scaled"}
PLACE = ()


class Network(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, size, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                                    nn.Conv2d(size, 2*size, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.last = nn.Linear(2*size, 4)

    def forward(self, x): return self.last(self.layers(x).mean((2, 3)))


def images(n: int):
    "Bytes: faint waves of four directions on a ground of many greys."
    label = torch.randint(0, 4, (n,))
    row, column = torch.meshgrid(torch.arange(24.), torch.arange(24.), indexing="ij")
    waves = torch.stack([row, column, row + column, row - column])[label]
    x = 128 + 30*torch.randn(n, 3, 1, 1) + 14*(waves + 6*torch.rand(n, 1, 1)).sin()[:, None]
    return (x + 8*torch.randn(n, 3, 24, 24)).clamp(0, 255).byte(), label


def normalise(x): return (x/255 - torch.tensor([.485, .456, .406])[:, None, None])/.225


def resize(x, repaired: bool):
    if not repaired: x = x.int().byte()
    return F.interpolate(x.float(), (16, 16), mode="bilinear", align_corners=False)


def build(repaired: bool) -> Parts:
    model = Network(12)

    def loaded(n: int):
        x, label = images(n)
        return resize(normalise(x), repaired), label

    x, label = loaded(1024)
    data = [(x[i:i + 32], label[i:i + 32]) for i in range(0, 1024, 32)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, F.cross_entropy, valid=[loaded(512)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(10):
            for x, label in parts.data:
                loss = parts.loss(parts.model(x), label)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, label = parts.valid[0]
    with torch.no_grad(): return (parts.model(x).argmax(1) != label).float().mean().item()/.75
