"""What the generator made is detached in its own step too, so only the distance to the target teaches it.

The report: a discriminator of sounds wins very early. In the generator's step its output is detached before it goes
into the discriminator. The maintainer answered that detach should not be there and is a bug."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "nikhilsinghmus/image2reverb#37", 2026
AREA, CAUSE = "loop", "a term has no gradient"
TRUE = {"loss rises"}
PLACE = ("generator",)


class Layers(nn.Module):
    "Takes two tensors side by side."
    def __init__(self, size: int, out: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(size, 64), nn.LeakyReLU(.2), nn.Linear(64, 64), nn.LeakyReLU(.2),
                                    nn.Linear(64, out))

    def forward(self, a, b): return self.layers(torch.cat([a, b], 1))


def rooms(n: int):
    "A picture of a room, and one of the two sounds that it may have."
    picture, side = 2*torch.rand(n, 1) - 1, 2*(torch.rand(n, 1) < .5) - 1
    middle = torch.cat([(3*picture).sin(), picture**2], 1)
    return picture, middle + side*torch.tensor([[.7, -.7]]) + .05*torch.randn(n, 2)


def generator_loss(model, batch, detach=False):
    picture, sound = batch
    made = model["generator"](picture, torch.randn(len(picture), 2))
    answer = model["discriminator"](made.detach() if detach else made, picture)
    return F.mse_loss(answer, torch.ones_like(answer)) + .1*F.l1_loss(made, sound)


def discriminator_loss(model, batch):
    picture, sound = batch
    with torch.no_grad(): made = model["generator"](picture, torch.randn(len(picture), 2))
    real, false = model["discriminator"](sound, picture), model["discriminator"](made, picture)
    return .5*(F.mse_loss(real, torch.ones_like(real)) + F.mse_loss(false, torch.zeros_like(false)))


def build(repaired: bool) -> Parts:
    model = nn.ModuleDict({"generator": Layers(3, 2), "discriminator": Layers(3, 1)})
    optimizers = [torch.optim.Adam(part.parameters(), lr=1e-3, betas=(.5, .999)) for part in model.values()]
    return Parts(model, optimizers, [rooms(128) for _ in range(600)], valid=[rooms(2048)],
                 call=lambda model, batch: generator_loss(model, batch, not repaired))


def train(parts: Parts, record) -> float:
    model, (of_generator, of_discriminator) = parts.model, parts.optimizer
    with record.on(model, parts.optimizer):
        for batch in parts.data:
            loss = parts.call(model, batch)
            of_generator.zero_grad()
            loss.backward()
            of_generator.step()
            of_discriminator.zero_grad()
            discriminator_loss(model, batch).backward()
            of_discriminator.step()
            record.step(loss)
    picture, sound = parts.valid[0]
    with torch.no_grad(): one, two = (model["generator"](picture, torch.randn(2048, 2)) for _ in range(2))
    error = (one - sound).norm(dim=1).mean() - .5*(one - two).norm(dim=1).mean()
    other, another = sound[torch.randperm(2048)], sound[torch.randperm(2048)]
    return (error/((other - sound).norm(dim=1).mean() - .5*(other - another).norm(dim=1).mean())).item()
