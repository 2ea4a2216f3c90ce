"""Behind the step that the scaler makes, or leaves out, the optimizer makes its own step with the same gradients.

The report is a change to the training of voices with a generator and a discriminator: both optimizers are called
directly after `scaler.step`. Its author watched infinite numbers in gradients and parameters; another developer took
the change over into his own."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "IAHispano/Applio#860", 2024
AREA, CAUSE = "precision", "float16 limit"
TRUE = {"NaN or Inf", "loss does not fall", "skipped steps"}
PLACE = ()


def net(start: int, size: int, end: int):
    return nn.Sequential(nn.Conv1d(start, size, 5, padding=2), nn.LeakyReLU(.1), nn.Conv1d(size, size, 5, padding=2),
                         nn.LeakyReLU(.1), nn.Conv1d(size, end, 3, padding=1))


class Voice(nn.Module):
    "A generator of a wave from a pitch, and a discriminator of waves."
    def __init__(self):
        super().__init__()
        self.generator, self.discriminator = net(2, 16, 1), net(1, 8, 1)


def waves(n: int):
    "Waves of one pitch each, and the place in the wave, which is what the generator sees."
    angle = torch.rand(n, 1, 1)*6 + (.2 + .6*torch.rand(n, 1, 1))*torch.arange(32)
    return torch.cat([angle.sin(), angle.cos()], 1), (2*angle).sin() + .3*(3*angle).cos()


def generator_loss(model, batch):
    "Forty-five times how far the wave is from the wanted one, and what the discriminator says."
    with torch.autocast("cpu", torch.float16):
        made = model.generator(batch[0])
        said = model.discriminator(made)
    return 45*F.l1_loss(made.float(), batch[1]) + (1 - said.float()).square().mean()


def discriminator_loss(model, batch):
    with torch.autocast("cpu", torch.float16):
        made, real = model.discriminator(model.generator(batch[0]).detach()), model.discriminator(batch[1])
    return made.float().square().mean() + (1 - real.float()).square().mean()


def build(repaired: bool) -> Parts:
    model = Voice()
    optimizers = [torch.optim.AdamW(part.parameters(), lr=1e-3, betas=(.8, .99))
                  for part in (model.generator, model.discriminator)]
    given, wave = waves(512)
    return Parts(model, optimizers, list(zip(given.split(16), wave.split(16))), call=generator_loss, valid=[waves(128)],
                 scaler=torch.amp.GradScaler("cpu"), repaired=repaired)


def train(parts: Parts, record) -> float:
    model, scaler, (generator, discriminator) = parts.model, parts.scaler, parts.optimizer
    with record.on(model, parts.optimizer, scaler=scaler):
        for _ in range(5):
            for batch in parts.data:
                discriminator.zero_grad()
                scaler.scale(discriminator_loss(model, batch)).backward()
                scaler.unscale_(discriminator)
                scaler.step(discriminator)
                if not parts.repaired: discriminator.step()
                loss = parts.call(model, batch)
                generator.zero_grad()
                scaler.scale(loss).backward()
                scaler.unscale_(generator)
                scaler.step(generator)
                if not parts.repaired: generator.step()
                scaler.update()
                record.step(loss)
    given, wave = parts.valid[0]
    with torch.no_grad(): return F.l1_loss(model.generator(given), wave).item()/wave.abs().mean().item()
