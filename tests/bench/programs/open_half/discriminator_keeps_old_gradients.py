"""The gradients of a discriminator are never cleared, so it also gets all those that the encoder sent through it.

The report: zero_grad of the second optimizer is missing in the training of an encoder for a fixed generator. The
maintainer answered that it was forgotten and added it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "Hsintien-Ng/idinvert_pytorch-reproduced#1", 2020
AREA, CAUSE = "loop", "gradients not cleared"
TRUE = set()
PLACE = ("discriminator",)


def images(n: int, generator):
    with torch.no_grad(): return generator(torch.randn(n, 4))


def encoder_loss(model, batch):
    "The image again, and a discriminator that takes it for a real one."
    again = model["generator"](model["encoder"](batch))
    return F.mse_loss(again, batch) + .2*F.softplus(-model["discriminator"](again)).mean()


def discriminator_loss(model, batch):
    with torch.no_grad(): again = model["generator"](model["encoder"](batch))
    real = batch.clone().requires_grad_()
    answer = model["discriminator"](real)
    slope, = torch.autograd.grad(answer.sum(), real, create_graph=True)
    return F.softplus(-answer).mean() + F.softplus(model["discriminator"](again)).mean() + .5*(slope**2).sum(1).mean()


def build(repaired: bool) -> Parts:
    generator = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 16)).requires_grad_(False)
    generator[0].weight *= 3
    generator[2].weight *= 3
    encoder = nn.Sequential(nn.Linear(16, 64), nn.LeakyReLU(.2), nn.Linear(64, 64), nn.LeakyReLU(.2), nn.Linear(64, 4))
    discriminator = nn.Sequential(nn.Linear(16, 48), nn.LeakyReLU(.2), nn.Linear(48, 48), nn.LeakyReLU(.2),
                                  nn.Linear(48, 1))
    model = nn.ModuleDict({"generator": generator, "encoder": encoder, "discriminator": discriminator})
    optimizers = [torch.optim.Adam(part.parameters(), lr=2e-3) for part in (encoder, discriminator)]
    data = list(images(1280, generator).split(64))
    return Parts(model, optimizers, data, call=encoder_loss, valid=[images(512, generator)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, (of_encoder, of_discriminator) = parts.model, parts.optimizer
    with record.on(model, parts.optimizer):
        for _ in range(20):
            for batch in parts.data:
                loss = encoder_loss(model, batch)
                of_encoder.zero_grad()
                loss.backward()
                of_encoder.step()
                loss_of_discriminator = discriminator_loss(model, batch)
                if parts.repaired: of_discriminator.zero_grad()
                loss_of_discriminator.backward()
                of_discriminator.step()
                record.step(loss)
    x = parts.valid[0]
    with torch.no_grad(): return (F.mse_loss(model["generator"](model["encoder"](x)), x)/x.var()).item()
