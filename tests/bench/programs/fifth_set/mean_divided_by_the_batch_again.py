"""The cross-entropy is a mean already and is divided by the number of images once more.

The report: a segmentation network takes the mean over all pixels and then divides it by the batch. The reporter's model
has trouble to converge while that second average is on, as the loss is far too small; a second reader noticed the
same."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "jfzhang95/pytorch-deeplab-xception#55", 2019
AREA, CAUSE = "loss and task", "wrong reduction"
TRUE = {"learning rate too small"}
PLACE = ()

kinds, batch = 4, 16


class Atrous(nn.Module):
    "A small backbone, and views of what it returns from near and from far."
    def __init__(self, size: int):
        super().__init__()
        def block(inside, outside, far=1, step=1):
            return nn.Sequential(nn.Conv2d(inside, outside, 3, step, far, far, bias=False), nn.BatchNorm2d(outside),
                                 nn.ReLU())
        self.body = nn.Sequential(block(3, size), block(size, 2*size, step=2))
        self.views = nn.ModuleList(block(2*size, size, far) for far in (1, 2, 4))
        self.last = nn.Conv2d(3*size, kinds, 1)

    def forward(self, x):
        seen = self.body(x)
        scores = self.last(torch.cat([view(seen) for view in self.views], 1))
        return F.interpolate(scores, x.shape[2:], mode="bilinear", align_corners=True)


class PixelLoss(nn.Module):
    def __init__(self, repaired: bool):
        super().__init__()
        self.batch_average = not repaired
        self.criterion = nn.CrossEntropyLoss(ignore_index=255)

    def forward(self, score, kind):
        loss = self.criterion(score, kind)
        return loss/len(score) if self.batch_average else loss


def streets(n: int, colours):
    "Boxes of three kinds on the ground, whose colours overlap; the edge of an image is not labelled."
    kind, place = torch.zeros(n, 20, 20, dtype=torch.long), torch.arange(20)
    for what in range(1, kinds):
        at, size = torch.randint(1, 13, (n, 2, 1)), torch.randint(5, 9, (n, 2, 1))
        inside = (place >= at) & (place < at + size)
        kind[inside[:, 0, :, None] & inside[:, 1, None]] = what
    image = 1.5*colours[kind].permute(0, 3, 1, 2) + torch.randn(n, 3, 20, 20)
    kind[:, [0, -1]] = kind[:, :, [0, -1]] = 255
    return image, kind


def build(repaired: bool) -> Parts:
    colours, model = torch.randn(kinds, 3), Atrous(8)
    optimizer = torch.optim.SGD(model.parameters(), lr=.1, momentum=.9, weight_decay=5e-4)
    return Parts(model, optimizer, [streets(batch, colours) for _ in range(25)], PixelLoss(repaired),
                 valid=[streets(100, colours)])


def train(parts: Parts, record) -> float:
    schedule = torch.optim.lr_scheduler.PolynomialLR(parts.optimizer, 75, .9)
    with record.on(parts.model, parts.optimizer):
        for _ in range(3):
            parts.model.train()
            for image, kind in parts.data:
                schedule.step()
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(image), kind)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    image, kind = parts.valid[0]
    with torch.no_grad(): found = parts.model(image).argmax(1)
    both = torch.stack([found, kind])[:, kind < 255]
    shared = [both.eq(k).all(0).sum()/both.eq(k).any(0).sum() for k in range(kinds)]
    return 1 - torch.stack(shared).mean().item()
