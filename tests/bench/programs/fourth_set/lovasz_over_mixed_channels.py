"""A loss for masks moves the samples to the end in place of the classes, before it flattens all pixels.

The report is the merged change: the original of this loss puts the classes last. With the samples there, the rows that
should be the classes of one pixel have values of other pixels and samples, and the labels belong to none of them."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "qubvel-org/segmentation_models.pytorch#461", 2021
AREA, CAUSE = "loss and task", "wrong axis"
TRUE = {"places mixed up"}
PLACE = ()

classes = 4


def conv(inputs: int, outputs: int):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.down, self.middle, self.up = conv(3, size), conv(size, 2*size), conv(3*size, size)
        self.pool, self.wide = nn.MaxPool2d(2), nn.Upsample(scale_factor=2)
        self.head = nn.Conv2d(size, classes, 1)

    def forward(self, image):
        x = self.down(image)
        return self.head(self.up(torch.cat([x, self.wide(self.middle(self.pool(x)))], 1)))


def gradient(wrong_first):
    "How much the index of Jaccard falls with each further error, of errors from the largest to the smallest."
    both = wrong_first.sum() - wrong_first.cumsum(0)
    either = wrong_first.sum() + (1 - wrong_first).cumsum(0)
    jaccard = 1 - both/either
    return torch.cat([jaccard[:1], jaccard[1:] - jaccard[:-1]])


class Lovasz(nn.Module):
    def __init__(self, repaired: bool):
        super().__init__()
        self.axis = 1 if repaired else 0

    def forward(self, output, label):
        share = output.softmax(1).movedim(self.axis, -1).reshape(-1, classes)
        label, losses = label.flatten(), []
        for each in label.unique():
            own = (label == each).float()
            error, order = (own - share[:, each]).abs().sort(0, descending=True)
            losses.append(error@gradient(own[order]))
        return torch.stack(losses).mean()


def pictures(n: int, colours):
    "A disc of one of three classes before the background, in its colour and with noise."
    center, radius, kind = 4 + 8*torch.rand(n, 2, 1, 1), 2 + 3*torch.rand(n, 1, 1), torch.randint(1, classes, (n, 1, 1))
    row, column = torch.arange(16.)[:, None], torch.arange(16.)
    inside = ((row - center[:, 0])**2 + (column - center[:, 1])**2).sqrt() < radius
    mask = kind*inside
    return colours[mask].permute(0, 3, 1, 2) + .5*torch.randn(n, 3, 16, 16), mask


def build(repaired: bool) -> Parts:
    colours, model = torch.randn(classes, 3), UNet(12)
    data = [pictures(8, colours) for _ in range(40)]
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    return Parts(model, optimizer, data, Lovasz(repaired), valid=[pictures(100, colours)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(3):
            parts.model.train()
            for image, mask in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(image), mask)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    image, mask = parts.valid[0]
    with torch.no_grad(): found = parts.model(image).argmax(1)
    each = [((found == k) & (mask == k)).sum()/((found == k) | (mask == k)).sum() for k in range(classes)]
    return 1 - torch.stack(each).mean().item()
