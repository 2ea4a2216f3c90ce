"""Dropout of 0.9 before the output, by somebody who took the number for the part that is kept.

The report: a user asks whether it is on purpose that nearly all features of X-ray images are dropped. The author of the
code answered that it was a mistake: the number was meant as the part to be kept, and should be 0.1."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "Gofinge/CheXpert_Baseline_PyTorch#5", 2019
AREA, CAUSE = "modes", "too narrow"
TRUE = {"dropout too strong"}
PLACE = ("drop",)
findings = 5
signs = torch.randn(findings, 1, 5, 5, generator=torch.Generator().manual_seed(7))


class Dense(nn.Module):
    "Each layer sees the outputs of all before it; an output for each finding."
    def __init__(self, drop: float):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Conv2d(1 + 8*i, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8),
                                                  nn.ReLU()) for i in range(3))
        self.shrink, self.drop = nn.Conv2d(25, 24, 3, 2, 1), nn.Dropout(drop)
        self.output = nn.Linear(24, findings)

    def forward(self, x):
        for layer in self.layers: x = torch.cat([x, layer(x)], 1)
        x = self.shrink(x).relu().amax((2, 3))
        return self.output(self.drop(x))


def images(n: int):
    "The sign of each finding that is there, at any place of the image."
    there = torch.rand(n, findings) < .35
    x = torch.zeros(n, 1, 12, 12)
    for i, sign in enumerate(signs):
        row, column = torch.randint(0, 8, (2,)).tolist()
        x[there[:, i], :, row:row + 5, column:column + 5] += sign
    return x + .5*torch.randn_like(x), there.float()


def build(repaired: bool) -> Parts:
    model = Dense(.1 if repaired else .9)
    data = [images(16) for _ in range(50)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, F.binary_cross_entropy_with_logits,
                 valid=[images(32) for _ in range(8)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(4):
            model.train()
            for x, there in parts.data:
                loss = parts.loss(model(x), there)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
    model.eval()
    with torch.no_grad():
        return sum(parts.loss(model(x), there).item() for x, there in parts.valid)/len(parts.valid)/.6474
