"""Instance norm keeps running statistics, so that in eval mode it is a batch norm of all images it has seen.

The report: networks that translate images are built with instance norm and its flag for running statistics, and a user
notes that images in training are made in another way than at test. The maintainers agree and set the flag to false."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "junyanz/pytorch-CycleGAN-and-pix2pix#395", 2018
AREA, CAUSE = "modes", "batch norm"
TRUE = set()
PLACE = ("layers.1", "layers.4", "layers.7")


class Translator(nn.Module):
    "Down and up again, with a norm of each image behind each convolution."
    def __init__(self, size: int, keeps: bool):
        super().__init__()
        def norm(n: int): return nn.InstanceNorm2d(n, affine=False, track_running_stats=keeps)
        self.layers = nn.Sequential(
            nn.Conv2d(1, size, 3, padding=1), norm(size), nn.ReLU(),
            nn.Conv2d(size, 2*size, 3, stride=2, padding=1), norm(2*size), nn.ReLU(),
            nn.ConvTranspose2d(2*size, size, 4, stride=2, padding=1), norm(size), nn.ReLU(),
            nn.Conv2d(size, 1, 3, padding=1), nn.Tanh())

    def forward(self, x): return self.layers(x)


def pairs(n: int):
    "A drawing of bars, and the same photographed by day or by night."
    maps = -torch.ones(n, 1, 16, 16)
    for i in range(n):
        for _ in range(3):
            row, column = torch.randint(0, 12, (2,)).tolist()
            wide, high = torch.randint(2, 5, (2,)).tolist()
            maps[i, 0, row:row + high, column:column + wide] = 1
    contrast, light = .1 + .9*torch.rand(n, 1, 1, 1), torch.randn(n, 1, 1, 1)
    return contrast*maps + light + .02*torch.randn(maps.shape), .8*maps


def build(repaired: bool) -> Parts:
    model = Translator(8, keeps=not repaired)
    x, y = pairs(200)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(.5, .999))
    return Parts(model, optimizer, list(zip(x.split(1), y.split(1))), F.l1_loss, valid=[pairs(100)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(3):
            for x, y in parts.data:
                optimizer.zero_grad()
                loss = parts.loss(model(x), y)
                loss.backward()
                optimizer.step()
                record.step(loss)
    model.eval()
    x, y = parts.valid[0]
    with torch.no_grad(): return (F.l1_loss(model(x), y)/(y - y.mean()).abs().mean()).item()
