"""A mask is predicted in one channel, but trained with a softmax over the channels, so that the loss is zero.

The report: binary segmentation does not learn and all pixels are called positive. A maintainer advised the loss with a
sigmoid, and the author confirmed that one channel learns with it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "open-mmlab/mmsegmentation#2201", 2022
AREA, CAUSE = "loss and task", "one class"
TRUE = {"loss does not fall", "cannot learn by heart", "gradients vanish", "labels not used", "not trained"}
PLACE = ()


class CrossEntropy(nn.Module):
    def __init__(self, use_sigmoid: bool = False):
        super().__init__()
        self.use_sigmoid = use_sigmoid

    def forward(self, logits, mask):
        if self.use_sigmoid: return F.binary_cross_entropy_with_logits(logits, mask)
        return F.cross_entropy(logits, mask)


def pictures(n: int):
    "A disc that is brighter than the rest, in noise; and where it is."
    line = torch.arange(16.)
    across, down, radius = (part.view(n, 1, 1) for part in (16*torch.rand(n), 16*torch.rand(n), 2 + 3*torch.rand(n)))
    mask = ((line - across)**2 + (line.view(1, 16, 1) - down)**2 < radius**2).float().unsqueeze(1)
    return mask + .7*torch.randn(n, 1, 16, 16), mask


def build(repaired: bool) -> Parts:
    model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
                          nn.Conv2d(16, 1, 1))
    loss = CrossEntropy(use_sigmoid=True) if repaired else CrossEntropy()
    data = [pictures(16) for _ in range(25)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3), data, loss, valid=[pictures(128)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            for picture, mask in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(picture), mask)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    picture, mask = parts.valid[0]
    with torch.no_grad(): found = parts.model(picture).sigmoid() > .5
    return ((found != mask.bool()).float().mean()/mask.mean()).item()
