"""A variational autoencoder takes a small weight for its divergence and never uses it, so the code says nothing.

The report: the option of a library for the weight of the divergence is stored and not used in the loss. A maintainer
agreed, and the change that multiplies it was merged."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "Lightning-Universe/lightning-bolts#328", 2020
AREA, CAUSE = "loss and task", "a term outweighs the others"
TRUE = {"loss outweighs", "input unused", "samples alike", "constant output"}
PLACE = ()


class Autoencoder(nn.Module):
    "An image becomes a normal distribution, and a sample of that becomes an image."
    def __init__(self, code: int, weight: float, repaired: bool):
        super().__init__()
        self.weight, self.repaired = weight, repaired
        self.encoder = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU(),
                                     nn.Flatten())
        self.mean, self.log_variance = nn.Linear(128, code), nn.Linear(128, code)
        self.decoder = nn.Sequential(nn.Linear(code, 128), nn.ReLU(), nn.Unflatten(1, (32, 2, 2)),
                                     nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1))

    def forward(self, image):
        there = self.encoder(image)
        mean, deviation = self.mean(there), (self.log_variance(there)/2).exp()
        prior = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
        likely = torch.distributions.Normal(mean, deviation)
        return self.decoder(likely.rsample()), torch.distributions.kl_divergence(likely, prior)


def images(n: int):
    "Two soft spots on a square of eight by eight."
    row, column = torch.meshgrid(torch.arange(8.), torch.arange(8.), indexing="ij")
    middle = 7*torch.rand(n, 2, 2, 1, 1)
    spots = (-((row - middle[:, :, 0])**2 + (column - middle[:, :, 1])**2)/4).exp()
    return spots.sum(1, keepdim=True)


def both_losses(model, image):
    made, divergence = model(image)
    apart = model.weight*divergence.mean() if model.repaired else divergence.mean()
    return F.mse_loss(made, image) + apart


def build(repaired: bool) -> Parts:
    model = Autoencoder(8, .001, repaired)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), list(images(2048).split(64)), call=both_losses,
                 valid=[images(256)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(10):
            for image in parts.data:
                loss = parts.call(parts.model, image)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    image = parts.valid[0]
    with torch.no_grad(): missed = F.mse_loss(parts.model(image)[0], image)
    return (missed/(image - image.mean(0)).square().mean()).item()
