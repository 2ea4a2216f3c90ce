"""The generator of a Wasserstein GAN goes down the critic's opinion of its own samples, where it has to go up.

The report is the merged change of the maintainer: the gradient that starts the backward pass of the generator was
one instead of minus one."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "Zeleni9/pytorch-wgan#53", 2025
AREA, CAUSE = "loss and task", "wrong sign"
TRUE = {"outputs blow up"}
PLACE = ()


def real(n: int): return torch.tensor([2., -1.]) + torch.randn(n, 2)*torch.tensor([.6, .3])


def opinions(model, batch):
    "What the critic thinks of real samples and of those of the generator."
    return model["critic"](batch), model["critic"](model["generator"](torch.randn(len(batch), 4)))


def build(repaired: bool) -> Parts:
    model = nn.ModuleDict({"generator": nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)),
                           "critic": nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))})
    optimizers = [torch.optim.RMSprop(part.parameters(), lr=2e-3) for part in model.values()]

    def call(model, batch):
        "The loss of the generator, as its backward pass takes it."
        opinion = opinions(model, batch)[1].mean()
        return -opinion if repaired else opinion

    return Parts(model, optimizers, [real(64) for _ in range(50)], call=call, valid=[real(1000)])


def train(parts: Parts, record) -> float:
    model, (generator, critic) = parts.model, parts.optimizer
    with record.on(model, parts.optimizer):
        for i in range(150):
            for j in range(3):
                critic.zero_grad()
                true, fake = opinions(model, parts.data[(3*i + j) % 50])
                (fake.mean() - true.mean()).backward()
                critic.step()
                with torch.no_grad():
                    for weight in model["critic"].parameters(): weight.clamp_(-.1, .1)
            generator.zero_grad()
            loss = parts.call(model, parts.data[i % 50])
            loss.backward()
            generator.step()
            record.step(loss)
    wanted = parts.valid[0]
    with torch.no_grad(): made = model["generator"](torch.randn(1000, 4))
    return (made.sort(0).values - wanted.sort(0).values).abs().mean().item()/1.6  # a guess: normal numbers
