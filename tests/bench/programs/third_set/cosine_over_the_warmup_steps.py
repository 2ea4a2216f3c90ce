"""The cosine is given the steps of the warm-up as its length, so the rate swings up and down until the end.

The report: a trainer of a diffusion model has a warm-up and a cosine, each with its own number of steps, and the number
for the warm-up is handed to both. The author of the code thanks and corrects the argument."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "lucidrains/imagen-pytorch#71", 2022
AREA, CAUSE = "optimizer and schedule", "schedule does not fit"
TRUE = set()
PLACE = ()
WARM, STEPS = 20, 400
KEPT = torch.cos(torch.linspace(0, 1.5, 50))**2  # what is left of the image after so many steps of noise


class Unet(nn.Module):
    "Tells the noise from a noisy image, the time and a text."
    def __init__(self, size: int):
        super().__init__()
        self.time, self.text = nn.Sequential(nn.Linear(9, 2*size), nn.SiLU()), nn.Embedding(4, 2*size)
        self.enter, self.down = nn.Conv2d(1, size, 3, padding=1), nn.Conv2d(size, 2*size, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(2*size, 2*size, 3, padding=1)
        self.up, self.leave = nn.ConvTranspose2d(2*size, size, 4, 2, 1), nn.Conv2d(2*size, 1, 3, padding=1)

    def forward(self, x, time, text):
        waves = time.unsqueeze(1)*2.**torch.arange(4)
        told = self.time(torch.cat([waves.sin(), waves.cos(), time.unsqueeze(1)], 1)) + self.text(text)
        first = F.silu(self.enter(x))
        x = F.silu(self.down(first) + told[:, :, None, None])
        x = F.silu(self.middle(x)) + x
        return self.leave(torch.cat([first, F.silu(self.up(x))], 1))


def images(n: int):
    "A smooth wave in one of four directions, which the text names."
    text = torch.randint(0, 4, (n,))
    angle, phase = text*math.pi/4, 2*math.pi*torch.rand(n)
    row, column = torch.meshgrid(torch.arange(8.), torch.arange(8.), indexing="ij")
    along = angle.cos().view(-1, 1, 1)*row + angle.sin().view(-1, 1, 1)*column
    return (.9*along + phase.view(-1, 1, 1)).sin().unsqueeze(1), text


def noisy(n: int):
    image, text = images(n)
    time, noise = torch.randint(0, len(KEPT), (n,)), torch.randn(n, 1, 8, 8)
    kept = KEPT[time].view(-1, 1, 1, 1)
    return (kept.sqrt()*image + (1 - kept).sqrt()*noise, time/len(KEPT), text), noise


def loss_of(model, batch): return F.mse_loss(model(*batch[0]), batch[1])


def build(repaired: bool) -> Parts:
    model = Unet(16)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.5e-2, betas=(.9, .99))
    return Parts(model, optimizer, [noisy(16) for _ in range(STEPS)], call=loss_of, valid=[noisy(512)],
                 repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    length = STEPS if parts.repaired else WARM
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1)/WARM)*(1 + math.cos(math.pi*step/length))/2)
    with record.on(model, optimizer):
        for batch in parts.data:
            loss = parts.call(model, batch)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            record.step(loss)
    with torch.no_grad(): return parts.call(model, parts.valid[0]).item()
