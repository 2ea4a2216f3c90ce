"""The real pictures of a GAN are between 0 and 1, those of its generator between -1 and 1.

The report: poor results, since the pictures are not normalized in the loader; another user had pictures with little
contrast and very good ones after the change. The author confirmed and repaired it."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

from tests.bench.programs import Parts

SOURCE, YEAR = "voletiv/self-attention-GAN-pytorch#6", 2020
AREA, CAUSE = "data and labels", "inputs not scaled"
TRUE = set()
PLACE = ()


def pictures(n: int):
    "A bar of any brightness on a dark ground; from 0 to 1."
    picture = torch.full((n, 8, 8), .1)
    picture[:, 1:7, 3:5] = .6 + .4*torch.rand(n, 1, 1)
    return (picture + .1*torch.randn(n, 8, 8)).clamp(0, 1).flatten(1)


def critic_loss(model, real, noise):
    return (F.relu(1 - model["critic"](real)) + F.relu(1 + model["critic"](model["generator"](noise)))).mean()


def generator_loss(model, real): return -model["critic"](model["generator"](torch.randn(len(real), 8))).mean()


def build(repaired: bool) -> Parts:
    model = nn.ModuleDict({
        "generator": nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                                   nn.Linear(64, 64), nn.Tanh()),
        "critic": nn.Sequential(spectral_norm(nn.Linear(64, 64)), nn.LeakyReLU(.1), spectral_norm(nn.Linear(64, 64)),
                                nn.LeakyReLU(.1), spectral_norm(nn.Linear(64, 1)))})
    optimizers = [torch.optim.Adam(part.parameters(), lr=rate, betas=(0., .9))
                  for part, rate in zip(model.values(), (5e-4, 2e-3))]
    data = [pictures(64) for _ in range(50)]
    if repaired: data = [2*real - 1 for real in data]
    return Parts(model, optimizers, data, call=generator_loss, valid=[pictures(500)])


def train(parts: Parts, record) -> float:
    model, (generator, critic) = parts.model, parts.optimizer
    with record.on(model, parts.optimizer):
        for _ in range(6):
            for real in parts.data:
                critic.zero_grad()
                critic_loss(model, real, torch.randn(len(real), 8)).backward()
                critic.step()
                generator.zero_grad()
                loss = parts.call(model, real)
                loss.backward()
                generator.step()
                record.step(loss)
    wanted = parts.valid[0]
    with torch.no_grad(): made = (model["generator"](torch.randn(500, 8)) + 1)/2
    return (F.mse_loss(made.mean(0), wanted.mean(0))/F.mse_loss(torch.full((64,), .5), wanted.mean(0))).item()
