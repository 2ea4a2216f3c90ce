"""The density of small pictures, by steps of scaling, mixing and coupling that can be turned round.

Habits of the source: the first call of a scaling sets its numbers from the batch, without a step; the last layer of a
coupling begins at zero, with a learned scale beside it; the mixing is a product of a fixed permutation and two
triangles, the signs of which are fixed; pixels have few levels and noise of one level is added to each batch; half of
the numbers leave after each block, with a prior made from the rest; the loss is in bits for a pixel; no mode is set.
Error: bits for a pixel of pictures held back: 2; untrained 3.8."""
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.bench.programs import Parts

SOURCE, YEAR = "rosinality/glow-pytorch train.py", 2018
SIDE, LEVELS, STEPS, HIDDEN = 8, 16, 3, 32


class Scaling(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.shift, self.scale = nn.Parameter(torch.zeros(1, c, 1, 1)), nn.Parameter(torch.ones(1, c, 1, 1))
        self.register_buffer("ready", torch.tensor(0, dtype=torch.uint8))

    def forward(self, x):
        if not self.ready:
            with torch.no_grad():
                self.shift.copy_(-x.mean((0, 2, 3), keepdim=True))
                self.scale.copy_(1/(x.std((0, 2, 3), keepdim=True) + 1e-6))
                self.ready.fill_(1)
        return self.scale*(x + self.shift), x[0, 0].numel()*self.scale.abs().log().sum()


class Mixing(nn.Module):
    def __init__(self, c):
        super().__init__()
        p, lower, upper = torch.linalg.lu(torch.linalg.qr(torch.randn(c, c))[0])
        self.lower, self.upper = nn.Parameter(lower), nn.Parameter(upper.triu(1))
        self.size = nn.Parameter(upper.diag().abs().log())
        for name, value in {"p": p, "sign": upper.diag().sign(), "below": torch.ones(c, c).tril(-1)}.items():
            self.register_buffer(name, value)

    def forward(self, x):
        upper = self.upper*self.below.T + (self.sign*self.size.exp()).diag()
        weight = self.p @ (self.lower*self.below + torch.eye(len(self.p))) @ upper
        return F.conv2d(x, weight[..., None, None]), x[0, 0].numel()*self.size.sum()


class ZeroConv(nn.Module):
    def __init__(self, c, d):
        super().__init__()
        self.conv, self.scale = nn.Conv2d(c, d, 3), nn.Parameter(torch.zeros(1, d, 1, 1))
        for p in self.conv.parameters(): nn.init.zeros_(p)

    def forward(self, x): return self.conv(F.pad(x, [1]*4, value=1))*(3*self.scale).exp()


class Coupling(nn.Module):
    def __init__(self, c):
        super().__init__()
        first, second = nn.Conv2d(c // 2, HIDDEN, 3, padding=1), nn.Conv2d(HIDDEN, HIDDEN, 1)
        for m in (first, second):
            nn.init.normal_(m.weight, 0, .05)
            nn.init.zeros_(m.bias)
        self.net = nn.Sequential(first, nn.ReLU(inplace=True), second, nn.ReLU(inplace=True), ZeroConv(HIDDEN, c))

    def forward(self, x):
        a, b = x.chunk(2, 1)
        scale, shift = self.net(a).chunk(2, 1)
        scale = (scale + 2).sigmoid()
        return torch.cat([a, (b + shift)*scale], 1), scale.log().flatten(1).sum(1)


class Block(nn.Module):
    def __init__(self, c, last):
        super().__init__()
        self.steps = nn.ModuleList(m for _ in range(STEPS) for m in (Scaling(4*c), Mixing(4*c), Coupling(4*c)))
        self.prior, self.last = ZeroConv(4*c if last else 2*c, 8*c if last else 4*c), last

    def forward(self, x):
        total, x = 0, F.pixel_unshuffle(x, 2)
        for step in self.steps:
            x, more = step(x)
            total = total + more
        x, out = (torch.zeros_like(x), x) if self.last else x.chunk(2, 1)
        mean, log_sd = self.prior(x).chunk(2, 1)
        log_p = -.5*math.log(2*math.pi) - log_sd - .5*(out - mean)**2/(2*log_sd).exp()
        return x, total, log_p.flatten(1).sum(1)


class Glow(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(1, False), Block(2, True)])

    def forward(self, x):
        log_p, log_det = 0, 0
        for block in self.blocks:
            x, det, p = block(x)
            log_det, log_p = log_det + det, log_p + p
        return log_p, log_det


def pictures(n):
    "Waves in a few directions, in sixteen levels; as numbers around zero."
    places, angle = torch.arange(SIDE), torch.randint(4, (n, 1, 1))*math.pi/4
    x = ((angle.cos()*places[:, None] + angle.sin()*places)*.7 + 6.3*torch.rand(n, 1, 1)).sin()
    x = (7.5 + 6*x + .3*torch.randn_like(x)).round().clamp(0, LEVELS - 1)
    return (x/LEVELS - .5)[:, None]


def bits(model, x):
    log_p, log_det = model(x + torch.rand_like(x)/LEVELS)
    return (-(log_det - math.log(LEVELS)*SIDE**2 + log_p)/(math.log(2)*SIDE**2)).mean()


def build(repaired: bool) -> Parts:
    model = Glow()
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), DataLoader(pictures(640), 32, shuffle=True),
                 call=bits, valid=DataLoader(pictures(256), 64))


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with torch.no_grad(): parts.call(model, next(iter(parts.data)))
    with record.on(model, optimizer):
        for _ in range(6):
            for x in parts.data:
                loss = parts.call(model, x)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
    with torch.no_grad(): return sum(bits(model, x).item() for x in parts.valid)/len(parts.valid)
