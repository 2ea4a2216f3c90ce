"""The images are scaled and the masks are not: an output between 0 and 1 is compared with 0 and 255.

The report: the script for training normalizes the images only, and the model never converges. After the labels were
normalized it converges well. The task is to find an object of a class that is shown by five images with their masks."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "HKUSTCV/FSS-1000#20", 2021
AREA, CAUSE = "data and labels", "targets not scaled"
TRUE = {"saturated"}
PLACE = ()

shots, size = 5, 12


def conv(inputs: int, outputs: int):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())


class Relation(nn.Module):
    "Features of the examples with their masks are averaged and compared with those of the image."
    def __init__(self, width: int):
        super().__init__()
        self.image, self.example = nn.Sequential(conv(3, width), conv(width, width)), conv(3 + 1, width)
        self.second = conv(width, width)
        self.relate = nn.Sequential(conv(2*width, width), conv(width, width), nn.Conv2d(width, 1, 1))

    def forward(self, images, masks, query):
        n = len(query)
        shown = self.example(torch.cat([images.flatten(0, 1), masks.flatten(0, 1)], 1))
        shown = self.second(shown).unflatten(0, (n, shots)).mean((1, 3, 4))
        found = self.image(query)
        both = torch.cat([found, shown[..., None, None].expand(-1, -1, size, size)], 1)
        return self.relate(both).sigmoid()


def objects(n: int, colour):
    "Two discs an image: one of the class, one of another colour; both in the range of 0 to 255."
    grid = torch.arange(float(size))
    other = colour.roll(1, 0)
    image, mask = 90 + 20*torch.randn(n, 3, size, size), torch.zeros(n, 1, size, size)
    for each, own in ((other, False), (colour, True)):
        center, radius = 2 + 8*torch.rand(2, n, 1, 1), 1.5 + 2*torch.rand(n, 1, 1)
        inside = (((grid[:, None] - center[0])**2 + (grid - center[1])**2).sqrt() < radius)[:, None]
        image = torch.where(inside, 110 + 90*each[:, :, None, None] + 10*torch.randn_like(image), image)
        mask = torch.where(inside, 255.*own, mask)
    return image.clamp(0, 255), mask


def episodes(n: int):
    colour = torch.rand(n, 3)*2 - 1
    images, masks = objects(n*shots, colour.repeat_interleave(shots, 0))
    query, mask = objects(n, colour)
    return images.unflatten(0, (n, shots))/255, masks.unflatten(0, (n, shots))/255, query/255, mask


def build(repaired: bool) -> Parts:
    model, criterion = Relation(16), nn.MSELoss()
    scale = 255 if repaired else 1
    def call(model, batch): return criterion(model(*batch[:3]), batch[3]/scale)
    data = [episodes(8) for _ in range(40)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, call=call, valid=[episodes(64)])


def train(parts: Parts, record) -> float:
    plan = torch.optim.lr_scheduler.StepLR(parts.optimizer, 60, .5)
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.model.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parts.model.parameters(), .5)
                parts.optimizer.step()
                plan.step()
                record.step(loss)
    *inputs, mask = parts.valid[0]
    with torch.no_grad(): found, mask = parts.model.eval()(*inputs) > .5, mask > 127
    return 1 - ((found & mask).sum()/(found | mask).sum()).item()
