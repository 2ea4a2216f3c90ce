"""The optimizer of a discriminator clears gradients and gets new ones, and its step is missing.

The report: in a net that fills holes in pictures the discriminator's parameters do not seem to be updated. The author
of the code said that the step is indeed missing, and added it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "zhaoyuzhi/deepfillv2#6", 2020
AREA, CAUSE = "loop", "no step"
TRUE = {"not trained", "loss does not fall"}
PLACE = ("discriminator", "discriminator.0", "discriminator.2", "discriminator.4")

high, hole = 12, slice(3, 9)


class Generator(nn.Module):
    "Gated convolutions over the picture with a hole, the mask and noise."
    def __init__(self, wide: int):
        super().__init__()
        sizes = [3, wide, wide]
        self.layers = nn.ModuleList([nn.Conv2d(a, 2*b, 5, padding=2) for a, b in zip(sizes, sizes[1:])])
        self.last = nn.Conv2d(wide, 1, 3, padding=1)

    def forward(self, picture, mask):
        x = torch.cat([picture*(1 - mask), mask, torch.randn_like(mask)], 1)
        for layer in self.layers:
            feature, gate = layer(x).chunk(2, 1)
            x = F.elu(feature)*gate.sigmoid()
        return self.last(x).tanh()*mask + picture*(1 - mask)


def mask_of(n: int):
    mask = torch.zeros(n, 1, high, high)
    mask[:, :, hole, hole] = 1
    return mask


def pictures(n: int):
    "A soft slope of shade under a rough texture, of which the mean is a bad filling."
    slope = F.interpolate(torch.randn(n, 1, 2, 2), size=high, mode="bilinear", align_corners=True)
    rough = torch.randint(0, 2, (n, 1, high, high))*2. - 1
    return (.2*slope + .5*rough).clamp(-1, 1)


def generator_loss(model, picture):
    mask = mask_of(len(picture))
    filled = model["generator"](picture, mask)
    return F.l1_loss(filled, picture) - model["discriminator"](torch.cat([filled, mask], 1)).mean()


def discriminator_loss(model, picture):
    mask = mask_of(len(picture))
    filled = model["generator"](picture, mask).detach()
    real, made = (model["discriminator"](torch.cat([x, mask], 1)) for x in (picture, filled))
    return F.relu(1 - real).mean() + F.relu(1 + made).mean()


def build(repaired: bool) -> Parts:
    norm = nn.utils.parametrizations.spectral_norm
    discriminator = nn.Sequential(norm(nn.Conv2d(2, 16, 3, 1, 1)), nn.LeakyReLU(.2), norm(nn.Conv2d(16, 32, 3, 1, 1)),
                                  nn.LeakyReLU(.2), norm(nn.Conv2d(32, 1, 3, 1, 1)))
    model = nn.ModuleDict({"generator": Generator(12), "discriminator": discriminator})
    optimizers = [torch.optim.Adam(part.parameters(), lr=2e-3, betas=(.5, .9)) for part in model.values()]
    data = [pictures(16) for _ in range(40)]
    return Parts(model, optimizers, data, call=generator_loss, valid=[pictures(256)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, (of_generator, of_discriminator) = parts.model, parts.optimizer
    with record.on(model, parts.optimizer):
        for _ in range(4):
            for picture in parts.data:
                of_discriminator.zero_grad()
                discriminator_loss(model, picture).backward()
                if parts.repaired: of_discriminator.step()
                of_generator.zero_grad()
                loss = parts.call(model, picture)
                loss.backward()
                of_generator.step()
                record.step(loss)
    picture = parts.valid[0]
    with torch.no_grad(): filled = model["generator"](picture, mask_of(256))
    made, real = (x[:, :, hole, hole].flatten().sort().values for x in (filled, picture))
    return ((made - real).abs().mean()/real.abs().mean()).item()
