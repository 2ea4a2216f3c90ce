"""The labels are taken out of a table, then the table is shuffled, and the names of the images are taken from it.

The merged change says just that: the shuffle was made after the labels were taken. The task is to find the diseases on
images of leaves, of which a leaf can have several."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "Borda/kaggle_image-classify#12", 2021
AREA, CAUSE = "data and labels", "labels do not belong to inputs"
TRUE = {"labels look random"}
PLACE = ()

diseases, size = 5, 12


class Table:
    "Names of images with their diseases, shuffled before it is divided."
    def __init__(self, images: dict, labels: list, repaired: bool):
        names = list(range(len(labels)))
        raw_labels = [labels[name] for name in names]
        names = [names[i] for i in torch.randperm(len(names)).tolist()]
        if repaired: raw_labels = [labels[name] for name in names]
        self.images, self.names, self.labels = images, names, raw_labels

    def part(self, start: int, end: int):
        image = torch.stack([self.images[name] for name in self.names[start:end]])
        encoded = torch.zeros(end - start, diseases)
        for row, found in zip(encoded, self.labels[start:end]): row[found] = 1
        return image, encoded


def leaf(spots):
    "A leaf on which each disease that it has leaves its mark at two places."
    found = (torch.rand(diseases) < .35).nonzero()[:, 0].tolist()
    image = .4*torch.randn(3, size, size) + torch.rand(3, 1, 1)
    for each in found:
        for _ in range(2):
            row, column = torch.randint(0, size - 3, (2,)).tolist()
            image[:, row:row + 4, column:column + 4] += spots[each]
    return image, found


class Leaves(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 4), nn.BatchNorm2d(width), nn.ReLU())
        self.layer = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
                                   nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width))
        self.fc = nn.Linear(2*width, diseases)

    def forward(self, image):
        x = self.stem(image)
        x = (x + self.layer(x)).relu()
        return self.fc(torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1))


def build(repaired: bool) -> Parts:
    spots = 1.5*torch.randn(diseases, 3, 4, 4)
    images, labels = zip(*[leaf(spots) for _ in range(1600)])
    table = Table(dict(enumerate(images)), labels, repaired)
    model = Leaves(16)
    data = [table.part(i, i + 32) for i in range(0, 1280, 32)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3), data, F.binary_cross_entropy_with_logits,
                 valid=[table.part(1280, 1600)])


def train(parts: Parts, record) -> float:
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(parts.optimizer, 6)
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            parts.model.train()
            for image, label in parts.data:
                loss = parts.loss(parts.model(image), label)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
            plan.step()
    parts.model.eval()
    image, label = parts.valid[0]
    with torch.no_grad(): found = parts.model(image) > 0
    both = (found & (label > 0)).sum(0)
    return 1 - (2*both/(found.sum(0) + label.sum(0)).clamp(min=1)).mean().item()  # 1 - F1
