"""A bracket is closed too late, so the critic of a Wasserstein GAN raises its opinion of real and of made images alike.

The report: the loss has minus the mean of both opinions, and the networks collapse fast. Its author tested the loss
with the bracket at its place, which works, and the author of the code agreed."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "YeonwooSung/GAN_Implementation#5", 2022
AREA, CAUSE = "loss and task", "wrong sign"
TRUE = {"samples alike", "constant output"}
PLACE = ()


class Networks(nn.Module):
    "A generator of small images, and a critic."
    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64), nn.LeakyReLU(.2), nn.Linear(64, 64),
                                       nn.LeakyReLU(.2), nn.Linear(64, 36), nn.Tanh())
        self.critic = nn.Sequential(nn.Linear(36, 64), nn.LeakyReLU(.2), nn.Linear(64, 64), nn.LeakyReLU(.2),
                                    nn.Linear(64, 1))


def images(n: int):
    "A bright row and a bright column on a dark square of six by six."
    row, column = torch.randint(0, 6, (2, n))
    image = -.8*torch.ones(n, 6, 6)
    image[torch.arange(n), row] = .8
    image[torch.arange(n), :, column] = .8
    return image.flatten(1)


def critic_loss(model, real, repaired: bool):
    made = model.generator(torch.randn(len(real), 8)).detach()
    if repaired: return -model.critic(real).mean() + model.critic(made).mean()
    return -(model.critic(real) + model.critic(made).mean()).mean()


def generator_loss(model, batch): return -model.critic(model.generator(torch.randn(len(batch), 8))).mean()


def build(repaired: bool) -> Parts:
    model = Networks()
    optimizers = [torch.optim.RMSprop(part.parameters(), lr=5e-4) for part in (model.generator, model.critic)]
    return Parts(model, optimizers, list(images(64*40).split(64)), call=generator_loss, valid=[images(512)],
                 repaired=repaired)


def far_apart(made, real):
    "How far the averages of the images are, and how far their covariances are."
    return (made.mean(0) - real.mean(0)).square().sum() + (made.T.cov() - real.T.cov()).square().sum()


def train(parts: Parts, record) -> float:
    model, (generator, critic) = parts.model, parts.optimizer
    with record.on(model, parts.optimizer):
        for _ in range(15):
            for i, real in enumerate(parts.data):
                critic.zero_grad()
                critic_loss(model, real, parts.repaired).backward()
                critic.step()
                for p in model.critic.parameters(): p.data.clamp_(-.05, .05)
                if i % 3: continue
                generator.zero_grad()
                loss = parts.call(model, real)
                loss.backward()
                generator.step()
                record.step(loss)
    real = parts.valid[0]
    with torch.no_grad(): made = model.generator(torch.randn(512, 8))
    return (far_apart(made, real)/far_apart(torch.zeros_like(real), real)).item()
