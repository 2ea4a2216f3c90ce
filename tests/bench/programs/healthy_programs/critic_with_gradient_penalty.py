"""A generator of small pictures and a critic whose gradient is held near one.

Habits of the source: five steps of the critic, then one of the generator; batch norm in the generator only; Adam with a
first beta of .5; a penalty of ten on the norm of the gradient at mixtures of real and made pictures; activations in
place; made pictures are not detached in the critic's step, the generator clears its gradients before its own.
Score: how far made pictures are from others that were held back, along random directions, by the distance of the
untrained generator's. Below .4; 1 for the untrained generator."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "eriklindernoren/PyTorch-GAN implementations/wgan_gp/wgan_gp.py", 2018
NOISE, SIDE = 8, 6


def generator():
    return nn.Sequential(nn.Linear(NOISE, 32), nn.LeakyReLU(.2, inplace=True), nn.Linear(32, 64),
                         nn.BatchNorm1d(64, .8), nn.LeakyReLU(.2, inplace=True), nn.Linear(64, SIDE*SIDE), nn.Tanh())


def critic():
    return nn.Sequential(nn.Linear(SIDE*SIDE, 64), nn.LeakyReLU(.2, inplace=True), nn.Linear(64, 32),
                         nn.LeakyReLU(.2, inplace=True), nn.Linear(32, 1))


def pictures(n: int):
    "A soft spot somewhere in the picture, between -1 and 1."
    places, middle = torch.arange(SIDE), 1 + (SIDE - 3)*torch.rand(n, 2, 1)
    row, column = (-(places - middle)**2/1.5).exp().unbind(1)
    return (2*row[:, :, None]*column[:, None] - 1).flatten(1)


def penalty(critic, real, made):
    mix = torch.rand(len(real), 1)
    between = (mix*real + (1 - mix)*made).requires_grad_()
    gradient, = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return ((gradient.norm(dim=1) - 1)**2).mean()


def distance(made, real):
    "Over random directions, between sorted projections."
    ways = torch.randn(SIDE*SIDE, 64, generator=torch.Generator().manual_seed(0))
    ways = ways/ways.norm(dim=0)
    return ((made @ ways).sort(0).values - (real @ ways).sort(0).values).abs().mean().item()


def critics_loss(model, real):
    made = model["generator"](torch.randn(len(real), NOISE))
    scores = model["critic"](made).mean() - model["critic"](real).mean()
    return scores + 10*penalty(model["critic"], real.data, made.data)


def build(repaired: bool) -> Parts:
    model = nn.ModuleDict({"generator": generator(), "critic": critic()})
    optimizers = [torch.optim.Adam(part.parameters(), lr=1e-3, betas=(.5, .999)) for part in model.values()]
    return Parts(model, optimizers, [pictures(64) for _ in range(100)], call=critics_loss, valid=[pictures(512)])


def train(parts: Parts, record) -> float:
    model, (of_generator, of_critic), (real,) = parts.model, parts.optimizer, parts.valid
    noise = torch.randn(512, NOISE)
    with torch.no_grad(): before = distance(model["generator"].eval()(noise), real)
    model.train()
    with record.on(model, parts.optimizer):
        for _ in range(8):
            for i, batch in enumerate(parts.data):
                of_critic.zero_grad()
                loss = parts.call(model, batch)
                loss.backward()
                of_critic.step()
                if i % 5 == 0:
                    of_generator.zero_grad()
                    made = model["generator"](torch.randn(len(batch), NOISE))
                    (-model["critic"](made).mean()).backward()
                    of_generator.step()
                record.step(loss)
    with torch.no_grad(): return distance(model["generator"].eval()(noise), real)/before
