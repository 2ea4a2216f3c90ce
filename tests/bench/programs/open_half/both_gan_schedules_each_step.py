"""The schedules of a generator and a discriminator are made for epochs and called after each batch.

The report: with a step size of half the epochs the rates are as good as zero after a few batches, and a model that
makes small images large does not seem to train. Its author moved both calls behind the epoch, and it started to train;
the code turned out to be that of another repository."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "leftthomas/SRGAN#94", 2020
AREA, CAUSE = "optimizer and schedule", "scheduler each batch"
TRUE = {"learning rate too small", "loss does not fall"}
PLACE = ()
EPOCHS = 20


def images(n: int):
    "Patches with soft edges, and the same at half their size."
    large = (4*F.interpolate(torch.randn(n, 1, 4, 4), size=16, mode="bicubic")).tanh()
    return F.avg_pool2d(large, 2), large


def generator_loss(model, batch):
    small, large = batch
    made = model["generator"](small)
    answer = model["discriminator"](made)
    return F.mse_loss(made, large) + 1e-3*F.binary_cross_entropy_with_logits(answer, torch.ones_like(answer))


def discriminator_loss(model, batch):
    small, large = batch
    real, made = model["discriminator"](large), model["discriminator"](model["generator"](small).detach())
    return F.softplus(-real).mean() + F.softplus(made).mean()


def build(repaired: bool) -> Parts:
    generator = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.PReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.PReLU(),
                              nn.Conv2d(16, 4, 3, padding=1), nn.PixelShuffle(2))
    discriminator = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.LeakyReLU(.2), nn.Conv2d(8, 16, 3, 2, 1),
                                  nn.LeakyReLU(.2), nn.Flatten(), nn.Linear(256, 1))
    model = nn.ModuleDict({"generator": generator, "discriminator": discriminator})
    optimizers = [torch.optim.Adam(part.parameters(), lr=1e-3) for part in (generator, discriminator)]
    small, large = images(384)
    data = list(zip(small.split(32), large.split(32)))
    return Parts(model, optimizers, data, call=generator_loss, valid=[images(256)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, (of_generator, of_discriminator) = parts.model, parts.optimizer
    schedules = [torch.optim.lr_scheduler.StepLR(o, step_size=EPOCHS//2, gamma=.1) for o in parts.optimizer]
    with record.on(model, parts.optimizer):
        for _ in range(EPOCHS):
            for batch in parts.data:
                of_discriminator.zero_grad()
                discriminator_loss(model, batch).backward()
                of_discriminator.step()
                of_generator.zero_grad()
                loss = parts.call(model, batch)
                loss.backward()
                of_generator.step()
                if not parts.repaired:
                    for schedule in schedules: schedule.step()
                record.step(loss)
            if parts.repaired:
                for schedule in schedules: schedule.step()
    small, large = parts.valid[0]
    with torch.no_grad(): return (F.mse_loss(model["generator"](small), large)/large.var()).item()
