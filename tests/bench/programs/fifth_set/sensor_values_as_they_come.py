"""A probe is trained on a frozen backbone that gets the values of a sensor as they come, from 0 to 10,000.

The report is the merged change: where a model declares no statistics of its own, only the unit was converted and
nothing standardized. The features collapse: models of three sizes get the same score to three digits, below that of
plain statistics of the pictures, and standardized inputs were better on ten of eleven data sets."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "torchgeo/torchgeo-bench#211", 2026
AREA, CAUSE = "data and labels", "inputs not scaled"
TRUE = {"loss does not fall"}
PLACE = ()

kinds, bands = 6, 4
level, spread = torch.tensor([1200., 1500., 1800., 3000.]), torch.tensor([300., 350., 400., 700.])


class Backbone(nn.Module):
    "A transformer over the patches of a picture; the mean of its tokens is the feature."
    def __init__(self, size: int):
        super().__init__()
        self.patches, self.place = nn.Conv2d(bands, size, 4, 4), nn.Parameter(.1*torch.randn(9, size))
        layer = nn.TransformerEncoderLayer(size, 2, 2*size, dropout=0., batch_first=True, norm_first=True)
        self.layers, self.norm = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.LayerNorm(size)

    def forward(self, x): return self.norm(self.layers(self.patches(x).flatten(2).mT + self.place)).mean(1)


def fields(n: int, looks):
    "What grows there shows in a pattern, which the season turns round; raw values."
    kind, sign = torch.randint(0, len(looks), (n,)), torch.randint(0, 2, (n, 1, 1, 1))*2. - 1
    x = sign*looks[kind].repeat(1, 1, 3, 3) + .6*torch.randn(n, bands, 12, 12)
    return (level.view(-1, 1, 1) + spread.view(-1, 1, 1)*x).clamp(0, 10000), kind


def standardized(x): return (x - level.view(-1, 1, 1))/spread.view(-1, 1, 1)


def pretrain(backbone, looks):
    "On more kinds of fields, standardized; afterwards the backbone is left alone."
    last = nn.Linear(24, len(looks))
    optimizer = torch.optim.Adam([*backbone.parameters(), *last.parameters()], lr=3e-3)
    for _ in range(120):
        x, kind = fields(32, looks)
        optimizer.zero_grad()
        F.cross_entropy(last(backbone(standardized(x))), kind).backward()
        optimizer.step()
    return backbone.requires_grad_(False).eval()


def build(repaired: bool) -> Parts:
    looks = torch.randn(2*kinds, bands, 4, 4)
    backbone, looks = pretrain(Backbone(24), looks), looks[:kinds]
    model = nn.Sequential(backbone, nn.Linear(24, kinds))
    data = [(standardized(x) if repaired else x, kind) for x, kind in (fields(32, looks) for _ in range(30))]
    x, kind = fields(512, looks)
    optimizer = torch.optim.AdamW(model[1].parameters(), lr=1e-2)
    return Parts(model, optimizer, data, F.cross_entropy, valid=[(standardized(x) if repaired else x, kind)])


def train(parts: Parts, record) -> float:
    model = parts.model
    with record.on(model, parts.optimizer):
        for _ in range(6):
            for x, kind in parts.data:
                loss = parts.loss(model(x), kind)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, kind = parts.valid[0]
    with torch.no_grad(): return (model(x).argmax(1) != kind).float().mean().item()
