"""A small residual net classifies pictures and is trained on mixtures of two of them, cropped and flipped.

Habits of the source: the inputs are mixtures with a weight from a beta distribution and the loss is the same mixture of
two losses, so that the training loss stays high; random crops and flips in training only; SGD with a rate of 0.1,
momentum and weight decay on everything; the rate is written into the groups after two milestones; one test an epoch.
Error: wrong answers on test pictures over those of guessing: 0 to 0.01; untrained 1."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "facebookresearch/mixup-cifar10 train.py", 2018
CLASSES = 4


class Block(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.conv2, self.bn2 = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        self.shortcut = nn.Sequential()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(out + self.shortcut(x))


def net():
    return nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), Block(8, 8, 1),
                         Block(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, CLASSES))


def pictures(n, size=12):
    "Rings, bars, corners and checks in any colour, at any place, as bytes; then scaled by mean and deviation."
    kind, grid = torch.randint(0, CLASSES, (n,)), torch.arange(size).float()
    y, x = grid[:, None] - 4 - 4*torch.rand(n, 1, 1), grid - 4 - 4*torch.rand(n, 1, 1)
    far = (x**2 + y**2).sqrt()
    shapes = torch.stack([((far > 2) & (far < 4)).expand(n, size, size), (y.abs() < 1.5).expand(n, size, size),
                          (x.abs() < 3.5) & (y.abs() < 3.5), (x*.9).sin()*(y*.9).sin() > 0])
    shape = shapes[kind, torch.arange(n)].float()[:, None]
    picture = 110 + shape*(30 + 60*torch.rand(n, 3, 1, 1)) + 30*torch.randn(n, 3, size, size)
    return (picture.clamp(0, 255)/255 - .48)/.2, kind


def moved(picture):
    "A random crop of the padded pictures, and a flip of half of them."
    dy, dx = torch.randint(0, 3, (2,)).tolist()
    picture = F.pad(picture, (1, 1, 1, 1))[..., dy:dy + picture.shape[-2], dx:dx + picture.shape[-1]]
    return torch.where(torch.rand(len(picture), 1, 1, 1) < .5, picture.flip(3), picture)


def build(repaired: bool) -> Parts:
    model = net()
    data = DataLoader(TensorDataset(*pictures(1000)), batch_size=50, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=.1, momentum=.9, weight_decay=1e-4)
    return Parts(model, optimizer, data, nn.CrossEntropyLoss(),
                 valid=DataLoader(TensorDataset(*pictures(400)), batch_size=100))


def test(model, loader):
    model.eval()
    with torch.no_grad(): return torch.cat([model(x).argmax(1) != y for x, y in loader]).float().mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    beta = torch.distributions.Beta(torch.ones(()), torch.ones(()))
    with record.on(model, optimizer):
        for epoch in range(10):
            model.train()
            for picture, kind in parts.data:
                picture, share, other = moved(picture), beta.sample().item(), torch.randperm(len(kind))
                answer = model(share*picture + (1 - share)*picture[other])
                loss = share*parts.loss(answer, kind) + (1 - share)*parts.loss(answer, kind[other])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
            wrong = test(model, parts.valid)
            for group in optimizer.param_groups: group["lr"] = .1*.1**((epoch >= 5) + (epoch >= 8))
    return wrong*CLASSES/(CLASSES - 1)
