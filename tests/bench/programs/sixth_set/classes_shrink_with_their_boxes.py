"""Mixing two images multiplies the rows of their boxes by the share of the image, and the class is in the row.

The report: the augmentation of a detector returns wrong targets, since the numbers of classes and all coordinates are
multiplied by a random number. A maintainer confirmed the bug, and the merged change puts the rows together as they
are."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "MultimediaTechLab/YOLO#105", 2024
AREA, CAUSE = "data and labels", "labels wrongly encoded"
TRUE = set()
PLACE = ()


class Detector(nn.Module):
    "For each of 16 places: whether a box has its middle there, its class, and its borders."
    def __init__(self, size: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, size, 3, 2, 1), nn.SiLU(), nn.Conv2d(size, 2*size, 3, 2, 1), nn.SiLU(),
                                    nn.Conv2d(2*size, 2*size, 3, padding=1), nn.SiLU())
        self.head = nn.Conv2d(2*size, 8, 1)

    def forward(self, image): return self.head(self.layers(image)).flatten(2).transpose(1, 2)


def scene():
    "A noisy image with a coloured box, and its row: class, left, top, right, bottom."
    image, kind = .1*torch.rand(3, 16, 16), int(torch.randint(0, 3, ()))
    width, height = torch.randint(4, 9, (2,)).tolist()
    left, top = (int(torch.randint(0, 17 - side, ())) for side in (width, height))
    image[kind, top:top + height, left:left + width] += 1
    return image, torch.tensor([[kind, left/16, top/16, (left + width)/16, (top + height)/16]])


def mixed(one, other, repaired: bool):
    share = .2 + .6*float(torch.rand(()))
    rows = [one[1], other[1]] if repaired else [share*one[1], (1 - share)*other[1]]
    return share*one[0] + (1 - share)*other[0], torch.cat(rows)


def place(rows): return (4*(rows[..., 1:3] + rows[..., 3:])/2).long().clamp(0, 3) @ torch.tensor([1, 4])


def box_loss(output, rows):
    "Of the presence of a box, of its class and of its borders."
    where = place(rows)
    there = torch.zeros(output.shape[:2]).scatter(1, where, 1.)
    found = output.gather(1, where[..., None].expand(-1, -1, 8))
    return (F.binary_cross_entropy_with_logits(output[..., 0], there)
            + F.cross_entropy(found[..., 1:4].flatten(0, 1), rows[..., 0].long().flatten())
            + 5*F.l1_loss(found[..., 4:], rows[..., 1:]))


def stacked(scenes): return torch.stack([image for image, _ in scenes]), torch.stack([rows for _, rows in scenes])


def build(repaired: bool) -> Parts:
    model = Detector(16)
    scenes = [scene() for _ in range(512)]
    together = [mixed(a, b, repaired) for a, b in zip(scenes, scenes[1:] + scenes[:1])]
    data = [stacked(together[i:i + 32]) for i in range(0, 512, 32)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3), data, box_loss,
                 valid=[stacked([scene() for _ in range(256)])])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(16):
            for image, rows in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(image), rows)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    image, rows = parts.valid[0]
    with torch.no_grad(): output = parts.model(image)
    best = output[torch.arange(len(image)), output[..., 0].argmax(1)]
    near = (best[:, 4:] - rows[:, 0, 1:]).abs().amax(1) < .15
    return 1 - (near & (best[:, 1:4].argmax(1) == rows[:, 0, 0])).float().mean().item()
