"""Masks are read from pictures, so they are 0 and 255, and the loss takes them for probabilities.

The report: the loss of a U-Net is below minus a thousand and falls on, and the Dice coefficient is 1.97. A reader said
that masks have to be 0 and 1; the author changed that and got the right result."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "milesial/Pytorch-UNet#78", 2019
AREA, CAUSE = "loss and task", "loss does not fit the targets"
TRUE = {"targets not scaled", "outputs blow up"}
PLACE = ("out",)


def twice(inside: int, outside: int):
    return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(),
                         nn.Conv2d(outside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.start, self.down, self.up = twice(1, size), twice(size, 2*size), twice(3*size, size)
        self.out = nn.Conv2d(size, 1, 1)

    def forward(self, x):
        fine = self.start(x)
        coarse = self.down(F.max_pool2d(fine, 2))
        return self.out(self.up(torch.cat([fine, F.interpolate(coarse, scale_factor=2)], 1)))


def cars(n: int):
    "A dark box in a bright picture, and its mask as it was stored."
    picture, mask = 180 + 20*torch.randn(n, 1, 16, 16), torch.zeros(n, 1, 16, 16)
    for i in range(n):
        height, width = torch.randint(4, 11, (2,)).tolist()
        top, left = int(torch.randint(17 - height, (1,))), int(torch.randint(17 - width, (1,)))
        picture[i, 0, top:top + height, left:left + width] -= 60
        mask[i, 0, top:top + height, left:left + width] = 255
    return picture.clamp(0, 255)/255, mask


def build(repaired: bool) -> Parts:
    model = UNet(8)
    data, valid = [cars(8) for _ in range(30)], cars(64)
    if repaired: data, valid = [(x, mask/255) for x, mask in data], (valid[0], valid[1]/255)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, weight_decay=1e-8)
    return Parts(model, optimizer, data, nn.BCEWithLogitsLoss(), valid=[valid])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(3):
            parts.model.train()
            for picture, mask in parts.data:
                loss = parts.loss(parts.model(picture), mask)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    picture, mask = parts.valid[0]
    with torch.no_grad(): found = parts.model.eval()(picture) > 0
    return ((found != (mask > 0)).float().mean()/(mask > 0).float().mean()).item()
