"""A detector is trained with one image a batch, at the rate that is meant for batches of thirty-two.

The report: the loss of a detector rises within fifty steps and becomes NaN; only the size of the batch was changed. Its
author found that a small learning rate mends it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "amdegroot/ssd.pytorch#275", 2018
AREA, CAUSE = "optimizer and schedule", "learning rate too large"
TRUE = {"NaN or Inf", "loss rises", "loss does not fall", "gradients explode", "outputs blow up", "spike", "dead units",
        "activations explode"}
PLACE = ()
MIDDLES = torch.tensor([[4., 4], [4, 12], [12, 4], [12, 12]])


class Detector(nn.Module):
    "For each of four anchors: background or one of two things, and where its box is."
    def __init__(self, size: int):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, size, 3, padding=1), nn.ReLU(), nn.Conv2d(size, size, 3, 2, 1),
                                  nn.ReLU(), nn.Conv2d(size, size, 3, 2, 1), nn.ReLU(), nn.Conv2d(size, size, 3, 2, 1),
                                  nn.ReLU())
        self.kind, self.box = nn.Conv2d(size, 3, 1), nn.Conv2d(size, 4, 1)

    def forward(self, image):
        there = self.body(image)
        return self.kind(there).flatten(2).transpose(1, 2), self.box(there).flatten(2).transpose(1, 2)


def images(n: int):
    "Sixteen by sixteen points with one or two bright or dark boxes, each in a quarter of its own."
    image, kind, box = torch.randn(n, 1, 16, 16), torch.zeros(n, 4, dtype=torch.long), torch.zeros(n, 4, 4)
    for i in range(n):
        for quarter in torch.randperm(4)[:1 + i % 2].tolist():
            height, width = torch.randint(3, 8, (2,)).tolist()
            top, left = 8*(quarter//2), 8*(quarter % 2)
            kind[i, quarter] = 1 + torch.randint(0, 2, ())
            image[i, 0, top:top + height, left:left + width] += 1.5*(3 - 2*kind[i, quarter])
            middle = torch.tensor([top + height/2, left + width/2])
            box[i, quarter] = torch.cat([(middle - MIDDLES[quarter])/.8, (torch.tensor([height, width])/8).log()/.2])
    return image, kind, box


def both_losses(model, batch):
    "Where the boxes are and what they hold, divided by the number of boxes."
    image, kind, box = batch
    found, where = model(image)
    there = kind > 0
    place = F.smooth_l1_loss(where[there], box[there], reduction="sum")
    return (place + F.cross_entropy(found.flatten(0, 1), kind.flatten(), reduction="sum"))/there.sum()


def build(repaired: bool) -> Parts:
    model = Detector(16)
    optimizer = torch.optim.SGD(model.parameters(), lr=2e-3 if repaired else 1e-1, momentum=.9, weight_decay=5e-4)
    data = list(zip(*(part.split(1) for part in images(300))))
    return Parts(model, optimizer, data, call=both_losses, valid=[images(200)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(2):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad(): return parts.call(parts.model, parts.valid[0]).item()/8
