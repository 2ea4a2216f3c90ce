"""The Dice loss adds up over images, classes and pixels alike, so that the background alone makes it small.

The report is the merged change of a library: the loss became very low while nearly all was predicted to be background.
It now adds up over the pixels only and takes the mean over the classes."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "fastai/fastai#3439", 2021
AREA, CAUSE = "loss and task", "wrong axis"
TRUE = set()
PLACE = ()


class Dice(nn.Module):
    "One minus the overlap of what is found and what is there, for each class."
    def __init__(self, repaired: bool):
        super().__init__()
        self.over = (2, 3) if repaired else (0, 1, 2, 3)

    def forward(self, output, mask):
        there = F.one_hot(mask, output.shape[1]).permute(0, 3, 1, 2)
        found = output.softmax(1)
        both, either = (found*there).sum(self.over), (found + there).sum(self.over)
        return (1 - (2*both + 1e-6)/(either + 1e-6)).mean()


def segmenter(size: int, classes: int):
    return nn.Sequential(nn.Conv2d(1, size, 3, padding=1), nn.BatchNorm2d(size), nn.ReLU(),
                         nn.Conv2d(size, size, 3, padding=1), nn.BatchNorm2d(size), nn.ReLU(),
                         nn.Conv2d(size, size, 3, padding=1), nn.ReLU(), nn.Conv2d(size, classes, 1))


def streets(n: int):
    "In each image a small bright thing and two dim ones that are smaller still, in noise."
    image, mask = .4*torch.randn(n, 1, 16, 16), torch.zeros(n, 16, 16, dtype=torch.long)
    for i in range(n):
        for kind, side, light in (1, 4, 1.), (2, 2, .7), (2, 2, .7):
            top, left = torch.randint(0, 17 - side, (2,)).tolist()
            image[i, 0, top:top + side, left:left + side] += light
            mask[i, top:top + side, left:left + side] = kind
    return image, mask


def build(repaired: bool) -> Parts:
    model = segmenter(12, 3)
    data = [streets(8) for _ in range(30)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, Dice(repaired), valid=[streets(64)])


def train(parts: Parts, record) -> float:
    epochs = 5
    rate = torch.optim.lr_scheduler.OneCycleLR(parts.optimizer, 5e-3, total_steps=epochs*len(parts.data))
    with record.on(parts.model, parts.optimizer):
        for _ in range(epochs):
            parts.model.train()
            for image, mask in parts.data:
                loss = parts.loss(parts.model(image), mask)
                loss.backward()
                parts.optimizer.step()
                rate.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    image, mask = parts.valid[0]
    with torch.no_grad(): found = parts.model.eval()(image).argmax(1)
    pairs = [(found == kind, mask == kind) for kind in (1, 2)]
    return 1 - sum(2*(a & b).sum()/(a.sum() + b.sum()) for a, b in pairs).item()/2
