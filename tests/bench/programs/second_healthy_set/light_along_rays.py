"""A flat scene of coloured discs is learned from the rows of pixels that cameras around it see.

Habits of the source: a coarse net and a fine one, whose errors are added; the fine one looks where the coarse one
found something, through samples without gradient; places are given as sines of many frequencies and come in again
halfway; colours depend on the direction too, densities do not; samples are shaken in training only, and densities get
noise; the ground is white; at first only rays of the middle are used; a batch is rays of one view; the rate falls each
step.
Error: squared error of views held back, over their variance: .1; untrained 2.4."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "yenchenlin/nerf-pytorch run_nerf.py", 2020
PIXELS, NEAR, FAR, COARSE, FINE, STEPS, MIDDLE = 32, 1., 3., 16, 16, 400, 40
discs = torch.tensor([[-.35, .2, .25], [.3, -.3, .2], [.25, .4, .2]])
colours = torch.tensor([[.9, .2, .1], [.1, .7, .2], [.2, .3, .9]])


def sines(x, n): return torch.cat([x] + [f(2**k*x) for k in range(n) for f in (torch.sin, torch.cos)], -1)


class NeRF(nn.Module):
    def __init__(self, size=48):
        super().__init__()
        self.first = nn.ModuleList([nn.Linear(22, size), nn.Linear(size, size)])
        self.second = nn.Linear(size + 22, size)
        self.density, self.feature = nn.Linear(size, 1), nn.Linear(size, size)
        self.view, self.colour = nn.Linear(size + 10, size // 2), nn.Linear(size // 2, 3)

    def forward(self, x, way):
        x = sines(x, 5)
        inside = x
        for layer in self.first: inside = layer(inside).relu()
        inside = self.second(torch.cat([x, inside], -1)).relu()
        seen = self.view(torch.cat([self.feature(inside), sines(way, 2).expand(*x.shape[:2], -1)], -1)).relu()
        return self.colour(seen).sigmoid(), self.density(inside)[..., 0]


def light(colour, density, depth, noise=0):
    "What arrives of each sample, and its weight; white behind."
    step = torch.cat([depth[:, 1:] - depth[:, :-1], torch.full_like(depth[:, :1], 1e10)], 1)
    alpha = 1 - (-(density + noise*torch.randn_like(density)).relu()*step).exp()
    left = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1), 1)[:, :-1]
    weight = alpha*left
    return (weight[..., None]*colour).sum(1) + 1 - weight.sum(1, keepdim=True), weight


def fine_depths(depth, weight, n, shaken):
    "Drawn from the weights, between the samples."
    middle, weight = (depth[:, 1:] + depth[:, :-1])/2, weight[:, 1:-1] + 1e-5
    sums = F.pad((weight/weight.sum(1, keepdim=True)).cumsum(1), (1, 0))
    u = torch.rand(len(depth), n) if shaken else torch.linspace(0, 1, n).expand(len(depth), n).contiguous()
    above = torch.searchsorted(sums, u, right=True).clamp(1, sums.shape[1] - 1)
    (a, b), (low, high) = [[v.gather(1, i) for i in (above - 1, above)] for v in (sums, middle)]
    return low + (u - a)/torch.where(b - a < 1e-5, 1, b - a)*(high - low)


def rendered(model, start, way):
    shaken = model.training
    depth = torch.linspace(NEAR, FAR, COARSE).expand(len(start), COARSE)
    if shaken: depth = depth + (torch.rand_like(depth) - .5)*(FAR - NEAR)/(COARSE - 1)
    def looked(net, depth): return net(start[:, None] + way[:, None]*depth[..., None], way[:, None])
    coarse, weight = light(*looked(model["coarse"], depth), depth, .1*shaken)
    depth = torch.cat([depth, fine_depths(depth, weight.detach(), FINE, shaken)], 1).sort(1).values
    return coarse, light(*looked(model["fine"], depth), depth, .1*shaken)[0]


def both_errors(model, batch):
    start, way, pixel = batch
    return sum(F.mse_loss(found, pixel) for found in rendered(model, start, way))


def view(angle):
    "Rays of a camera that looks at the middle, and the first disc that each hits."
    angle = torch.tensor(angle)
    ahead = -torch.stack([angle.cos(), angle.sin()])
    aside = torch.linspace(-.35, .35, PIXELS)[:, None]*torch.stack([-ahead[1], ahead[0]])
    start, way = (-2*ahead).expand(PIXELS, 2), F.normalize(ahead + aside, dim=1)
    to = discs[:, :2] - start[:, None]
    along = (to*way[:, None]).sum(-1)
    under = discs[:, 2]**2 - (to**2).sum(-1) + along**2
    hit = torch.where(under > 0, along - under.clamp(min=0).sqrt(), torch.inf)
    return start, way, torch.where(hit.amin(1, keepdim=True) < FAR, colours[hit.argmin(1)], 1)


def build(repaired: bool) -> Parts:
    model = nn.ModuleDict({"coarse": NeRF(), "fine": NeRF()})
    turns = [2*math.pi*k/20 + .1 for k in range(20)]
    held = [2*math.pi*(k + .5)/7 for k in range(7)]
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(.9, .999))
    return Parts(model, optimizer, [view(a) for a in turns], call=both_errors, valid=[view(a) for a in held])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    model.train()
    with record.on(model, optimizer):
        for step in range(STEPS):
            batch = parts.data[int(torch.randint(len(parts.data), ()))]
            if step < MIDDLE: batch = [part[PIXELS // 4:-PIXELS // 4] for part in batch]
            loss = parts.call(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for group in optimizer.param_groups: group["lr"] = 5e-3*.1**(step/STEPS)
            record.step(loss)
    model.eval()
    with torch.no_grad(): wrong = [F.mse_loss(rendered(model, *rays)[1], pixel) for *rays, pixel in parts.valid]
    return (torch.stack(wrong).mean()/torch.cat([pixel for *_, pixel in parts.valid]).var()).item()
