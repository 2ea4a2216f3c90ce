"""lightly: SimCLR, two changed views of each image find each other in the batch.

After the tutorial and example "SimCLR" of Lightly: a batch is a list of views, with labels that the loss does not use
and names of files; projection head and `NTXentLoss`; large momentum SGD. Error: wrong digits of changed images by the
nearest neighbor."""
import torch
from lightly.loss import NTXentLoss
from lightly.models.modules import SimCLRProjectionHead
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from tests.bench.libraries._data import digits, split
from tests.bench.programs import Parts

SOURCE = "lightly: SimCLR"
PACKAGES = ("lightly", "scikit-learn")


def view(x):
    "Moved by up to a pixel, brighter or darker, with noise."
    down, across = torch.randint(-1, 2, (2,)).tolist()
    x = torch.roll(x, (down, across), (-2, -1))*(.7 + .6*torch.rand(()))
    return x + .1*torch.randn_like(x)


class Views(Dataset):
    def __init__(self, x, y): self.x, self.y = x, y

    def __len__(self): return len(self.y)

    def __getitem__(self, i): return [view(self.x[i]), view(self.x[i])], self.y[i], f"{i}.png"


class SimCLR(nn.Module):
    def __init__(self, backbone, width):
        super().__init__()
        self.backbone, self.projection_head = backbone, SimCLRProjectionHead(width, width, 32)

    def forward(self, x): return self.projection_head(self.backbone(x).flatten(start_dim=1))


def body(width):
    return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(16, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1))


def build() -> Parts:
    known, held = split(*digits(), n=1200)
    model, criterion = SimCLR(body(64), 64), NTXentLoss(temperature=.2)

    def call(model, batch):
        x0, x1 = batch[0]
        return criterion(model(x0), model(x1))
    parts = Parts(model, torch.optim.SGD(model.parameters(), lr=.1, momentum=.9, weight_decay=5e-4),
                  DataLoader(Views(*known), 128, shuffle=True, drop_last=True), call=call)
    parts.test = held
    return parts


@torch.no_grad()
def error(parts: Parts) -> float:
    x, y = parts.test
    x = torch.stack([view(image) for image in x])
    parts.model.eval()
    vectors = F.normalize(parts.model.backbone(x).flatten(1))
    nearest = (vectors @ vectors.T).fill_diagonal_(-2).argmax(1)
    return (y[nearest] != y).float().mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer=optimizer):
        for _ in range(10):
            model.train()
            for batch in parts.data:
                loss = parts.call(model, batch)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                record.step(loss)
    return error(parts)
