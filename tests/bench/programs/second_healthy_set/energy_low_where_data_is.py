"""A net gives low energy to pictures of a spot and high energy to what it finds by walking downhill.

Habits of the source: the walks go down the energy with noise, on inputs with gradients while the weights have none,
and each step's gradient is clamped; nearly all walks start where an earlier one ended, kept in a store, a few from
noise; the loss is a difference that hovers around zero, beside the squares of both energies; gradients are clipped to
three times the deviation that Adam knows; its first beta is zero; all is held in 0 to 1; all layers but the last have
a spectral norm.
Error: how often a picture held back has a higher energy than one with its pixels shuffled: under .01; untrained .54."""
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.data import DataLoader

from tests.bench.programs import Parts

SOURCE, YEAR = "rosinality/igebm-pytorch train.py", 2019
SIDE, STEPS, WALK, SIZE, BATCH = 8, 100, 10, 10., 32


def pictures(n):
    "A soft bright spot anywhere, with a little noise."
    row, column = (-(torch.arange(SIDE) - 1 - (SIDE - 3)*torch.rand(2, n, 1))**2/2).exp()
    return (row[:, None, :, None]*column[:, None, None] + .03*torch.randn(n, 1, SIDE, SIDE)).clamp(0, 1)


class Store:
    def __init__(self, most=2000): self.most, self.kept = most, []

    def push(self, x): self.kept = (self.kept + [*x])[-self.most:]

    def start(self, n):
        if not self.kept: return torch.rand(n, 1, SIDE, SIDE)
        old = int((torch.rand(n) < .95).sum())
        chosen = torch.randint(len(self.kept), (old,)).tolist()
        return torch.cat([torch.stack([self.kept[i] for i in chosen]), torch.rand(n - old, 1, SIDE, SIDE)])


def walked(model, x):
    model.requires_grad_(False)
    model.eval()
    x.requires_grad = True
    for _ in range(WALK):
        x.data.add_(.005*torch.randn_like(x))
        model(x).sum().backward()
        x.grad.clamp_(-.01, .01)
        x.data.add_(x.grad, alpha=-SIZE)
        x.grad.zero_()
        x.data.clamp_(0, 1)
    model.requires_grad_(True)
    model.train()
    return x.detach()


def contrast(model, real, made=None):
    made = torch.rand_like(real) if made is None else made
    low, high = model(real), model(made)
    return (low**2 + high**2 + (low - high)).mean()


def clip(optimizer):
    for group in optimizer.param_groups:
        for p in group["params"]:
            state = optimizer.state[p]
            if not state: continue
            bound = 3*(state["exp_avg_sq"]/(1 - group["betas"][1]**state["step"])).sqrt() + .1
            p.grad.copy_(p.grad.minimum(bound).maximum(-bound))


def net(size=24):
    layers = []
    for c, d in ((1, size), (size, 2*size), (2*size, 2*size)):
        layers += [spectral_norm(nn.Conv2d(c, d, 3, 2 if c > 1 else 1, 1)), nn.LeakyReLU(.2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8*size, 1))


def build(repaired: bool) -> Parts:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0., .999))
    return Parts(model, optimizer, DataLoader(pictures(640), BATCH, shuffle=True), call=contrast,
                 valid=DataLoader(pictures(320), BATCH))


def train(parts: Parts, record) -> float:
    model, optimizer, store, steps = parts.model, parts.optimizer, Store(), 0
    with record.on(model, optimizer):
        while steps < STEPS:
            for real in parts.data:
                made = walked(model, store.start(len(real)))
                model.zero_grad()
                loss = parts.call(model, real, made)
                loss.backward()
                clip(optimizer)
                optimizer.step()
                store.push(made)
                record.step(loss)
                steps += 1
    model.eval()
    real = parts.valid.dataset
    mixed = real.flatten(1)[:, torch.randperm(SIDE**2)].view_as(real)
    with torch.no_grad(): low, high = model(real), model(mixed)
    return (low > high.T).float().mean().item()
