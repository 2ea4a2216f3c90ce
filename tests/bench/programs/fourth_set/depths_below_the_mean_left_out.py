"""Depth has a mean of zero, and the loss counts places with a depth above zero, so it leaves out what is near.

The report: most of the depths are excluded; only those that are exactly zero, which were not measured, should be. The
author of the code agrees. The network has a second task, the kind of each pixel."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "isl-org/MultiObjectiveOptimization#7", 2019
AREA, CAUSE = "loss and task", "padding counts"
TRUE = set()
PLACE = ("depth",)

kinds = 4


class Scenes(nn.Module):
    "One encoder, and a decoder for each of two tasks."
    def __init__(self, size: int):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, size, 3, padding=1), nn.BatchNorm2d(size), nn.ReLU(),
                                     nn.Conv2d(size, size, 3, padding=1), nn.BatchNorm2d(size), nn.ReLU())
        self.kind = nn.Sequential(nn.Conv2d(size, size, 1), nn.ReLU(), nn.Conv2d(size, kinds, 1))
        self.depth = nn.Sequential(nn.Conv2d(size, size, 1), nn.ReLU(), nn.Conv2d(size, 1, 1))

    def forward(self, image):
        x = self.encoder(image)
        return self.kind(x).log_softmax(1), self.depth(x)


def scenes(n: int, colours):
    "Patches of four kinds; what is far is pale. A sixth of the depths was not measured."
    kind = torch.randint(0, kinds, (n, 3, 3)).repeat_interleave(4, 1).repeat_interleave(4, 2)
    depth = F.interpolate(torch.rand(n, 1, 3, 3), (12, 12), mode="bilinear")
    image = colours[kind].permute(0, 3, 1, 2)*(1.2 - depth) + .05*torch.randn(n, 3, 12, 12)
    depth = (depth - .5)/.2
    return image, kind, depth*(torch.rand_like(depth) > 1/6)


def build(repaired: bool) -> Parts:
    colours, model = torch.rand(kinds, 3), Scenes(16)

    def depth_loss(found, depth):
        counts = depth != 0 if repaired else depth > 0
        return ((found - depth).abs()*counts).sum()/counts.sum()

    def call(model, batch):
        image, kind, depth = batch
        kind_found, depth_found = model(image)
        return .5*F.nll_loss(kind_found, kind) + .5*depth_loss(depth_found, depth)

    data = [scenes(16, colours) for _ in range(30)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, call=call, valid=[scenes(64, colours)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            parts.model.train()
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    image, _, depth = parts.valid[0]
    with torch.no_grad(): found = parts.model(image)[1]
    return (found - depth)[depth != 0].abs().mean().item()
