"""The last layer of a variational encoder has a ReLU, so no mean is below zero and no variance below one.

The report: after training, none of the latent codes of a network for face meshes is negative; the ReLU at the end of
the encoder is not needed, and harmful for the variational form. The reporter put a leaky ReLU for the means and a
sigmoid for the deviations there, and it works."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pixelite1201/pytorch_coma#21", 2022
AREA, CAUSE = "structure", "activation at the wrong place"
TRUE = set()
PLACE = ("to_code",)

points, codes = 32, 4


class Ring(nn.Module):
    "A convolution over the points of a ring and their neighbours, in place of one over a mesh."
    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, 3, padding=1, padding_mode="circular")

    def forward(self, x): return self.conv(x)


class Coma(nn.Module):
    def __init__(self, repaired: bool):
        super().__init__()
        self.down = nn.ModuleList([Ring(3, 16), Ring(16, 16)])
        self.to_code = nn.Linear(16*points//4, 2*codes)
        self.from_code = nn.Linear(codes, 16*points//4)
        self.up = nn.ModuleList([Ring(16, 16), Ring(16, 3)])
        self.repaired = repaired

    def encode(self, x):
        for layer in self.down: x = F.avg_pool1d(F.relu(layer(x)), 2)
        x = self.to_code(x.flatten(1))
        mean, spread = (x if self.repaired else F.relu(x)).chunk(2, 1)
        return (F.leaky_relu(mean, .3), spread.sigmoid()) if self.repaired else (mean, (spread/2).exp())

    def forward(self, x):
        mean, spread = self.encode(x)
        code = mean + spread*torch.randn_like(mean) if self.training else mean
        x = F.relu(self.from_code(code)).unflatten(1, (16, -1))
        x = F.relu(self.up[0](F.interpolate(x, scale_factor=2.)))
        return self.up[1](F.interpolate(x, scale_factor=2.)), mean, spread


def faces(n: int, ways):
    "Points of a ring that moves in four ways."
    x = (torch.randn(n, codes) @ ways).unflatten(1, (3, points))
    return x + .05*torch.randn_like(x)


def call(model, x):
    again, mean, spread = model(x)
    apart = .5*(mean.square() + spread.square() - 1 - 2*spread.log()).sum(1).mean()
    return F.l1_loss(again, x) + 3e-3*apart


def build(repaired: bool) -> Parts:
    around = torch.arange(points)/points*6.2832
    waves = torch.stack([around.sin(), around.cos(), (2*around).sin(), (2*around).cos()])
    ways = (torch.randn(codes, 3, 4) @ waves).flatten(1)*.5
    model = Coma(repaired)
    data = [faces(32, ways) for _ in range(40)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, call=call, valid=[faces(300, ways)])


def train(parts: Parts, record) -> float:
    plan = torch.optim.lr_scheduler.ExponentialLR(parts.optimizer, .95)
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            parts.model.train()
            for x in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, x)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
            plan.step()
    parts.model.eval()
    x = parts.valid[0]
    with torch.no_grad(): return (F.l1_loss(parts.model(x)[0], x)/x.abs().mean()).item()
