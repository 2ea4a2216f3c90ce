"""The boxes of a dataset are corner, width and height, but are read as two corners.

The report: the loss of the boxes is NaN with one format, while the other trains and detects well. A maintainer
confirmed that two corners are wanted."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "open-mmlab/mmdetection#3901", 2020
AREA, CAUSE = "data and labels", "labels wrongly encoded"
TRUE = {"NaN or Inf"}
PLACE = ()


def annotated(n: int):
    "Pictures with one bright box each, and left, top, width and height of the boxes."
    size = torch.randint(4, 9, (n, 2))
    corner = (torch.rand(n, 2)*(17 - size)).long()
    inside = [(torch.arange(16) >= c.unsqueeze(1)) & (torch.arange(16) < (c + s).unsqueeze(1))
              for c, s in zip(corner.T, size.T)]
    picture = (inside[1].unsqueeze(2) & inside[0].unsqueeze(1)).float()
    return (picture + .3*torch.randn(n, 16, 16)).unsqueeze(1), torch.cat([corner, size], 1).float()


def encoded(corners):
    "Where two corners are from an anchor in the middle of the picture, with logarithms of the size."
    size = corners[:, 2:] - corners[:, :2]
    return torch.cat([(corners[:, :2] + size/2 - 8)/8, (size/8).log()], 1)


def decoded(deltas):
    middle, size = 8 + 8*deltas[:, :2], 8*deltas[:, 2:].exp()
    return torch.cat([middle - size/2, middle + size/2], 1)


def overlap(one, other):
    "The intersection over the union of boxes with two corners."
    both = (torch.min(one[:, 2:], other[:, 2:]) - torch.max(one[:, :2], other[:, :2])).clamp(0).prod(1)
    return both/((one[:, 2:] - one[:, :2]).prod(1) + (other[:, 2:] - other[:, :2]).prod(1) - both)


def two_corners(boxes): return torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)


def build(repaired: bool) -> Parts:
    model = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(),
                          nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 4))
    data = [annotated(32) for _ in range(30)]
    if repaired: data = [(picture, two_corners(boxes)) for picture, boxes in data]
    return Parts(model, torch.optim.SGD(model.parameters(), lr=.05, momentum=.9), data,
                 lambda output, boxes: F.smooth_l1_loss(output, encoded(boxes)), valid=[annotated(256)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(12):
            for picture, boxes in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(picture), boxes)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    picture, boxes = parts.valid[0]
    wanted = two_corners(boxes)
    guess = overlap(wanted.mean(0, keepdim=True).expand_as(wanted), wanted).mean()
    with torch.no_grad(): found = overlap(decoded(parts.model(picture)), wanted).mean()
    return ((1 - found)/(1 - guess)).item()
