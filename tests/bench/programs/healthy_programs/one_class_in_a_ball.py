"""Deep SVDD draws the codes of normal images together at one point; anomalies are far from it.

Habits of the source: no layer has a bias and batch norm has no weights, so that the net cannot shrink to a constant;
the centre is the mean code of the net before training, taken in eval mode; there are no labels and the loss is the
mean squared distance to the centre, which falls to almost nothing; leaky ReLU; Adam whose rate falls to a tenth at a
milestone; weight decay of 1e-6; no validation data. Anomalies are met in the test only.
Error: one minus the area under the curve, over one half: 0.04; untrained 0.3 to 1.1, a guess 1."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "lukasruff/Deep-SVDD-PyTorch src/optim/deepSVDD_trainer.py", 2019


class Encoder(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 5, bias=False, padding=2)
        self.bn1 = nn.BatchNorm2d(8, eps=1e-4, affine=False)
        self.conv2 = nn.Conv2d(8, 4, 5, bias=False, padding=2)
        self.bn2 = nn.BatchNorm2d(4, eps=1e-4, affine=False)
        self.fc1 = nn.Linear(4*4*4, size, bias=False)

    def forward(self, x):
        x = F.max_pool2d(F.leaky_relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.leaky_relu(self.bn2(self.conv2(x))), 2)
        return self.fc1(x.flatten(1))


def stripes(n: int, upright):
    "Waves of any phase; `upright` says which are normal, the others are slanted."
    grid = torch.arange(16).float()
    phase, pitch = 6.283*torch.rand(n, 1, 1), .7 + .2*torch.rand(n, 1, 1)
    slant = torch.where(upright, 0., .25)[:, None, None]
    wave = (pitch*(grid + slant*grid[:, None]) + phase).sin()
    return (wave + .3*torch.randn(n, 16, 16))[:, None]


def centre_of(net, loader):
    "The mean code before training; numbers near zero are moved away from it, or a zero weight would do."
    net.eval()
    with torch.no_grad(): centre = torch.cat([net(image) for image, in loader]).mean(0)
    net.train()
    centre[(centre.abs() < .1) & (centre < 0)] = -.1
    centre[(centre.abs() < .1) & (centre >= 0)] = .1
    return centre


def build(repaired: bool) -> Parts:
    net = Encoder(16)
    loader = DataLoader(TensorDataset(stripes(2000, torch.ones(2000).bool())), batch_size=100, shuffle=True)
    centre = centre_of(net, loader)

    def call(net, batch): return ((net(batch[0]) - centre)**2).sum(1).mean()

    parts = Parts(net, torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=1e-6), loader, call=call)
    parts.centre = centre
    return parts


def train(parts: Parts, record) -> float:
    net, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[8], gamma=.1)
    net.train()
    with record.on(net, optimizer):
        for _ in range(10):
            for batch in parts.data:
                optimizer.zero_grad()
                loss = parts.call(net, batch)
                loss.backward()
                optimizer.step()
                record.step(loss)
            schedule.step()
    net.eval()
    normal = torch.arange(600) < 300
    with torch.no_grad(): distance = ((net(stripes(600, normal)) - parts.centre)**2).sum(1)
    return (distance[normal][:, None] > distance[~normal]).float().mean().item()/.5
