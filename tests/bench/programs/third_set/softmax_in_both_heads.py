"""Both heads of a network for two domains end with a softmax, and the cross-entropy has one of its own.

The report: the softmax in the classifier and in the discriminator makes the models hard to train. The maintainer
agreed, since the loss includes it, and took both out."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "NaJaeMin92/pytorch-DANN#7", 2023
AREA, CAUSE = "loss and task", "activation before the loss"
TRUE = {"loss does not fall", "learning rate too small"}
PLACE = ("classifier", "discriminator")


class Reverse(torch.autograd.Function):
    "The gradient goes back with the other sign."
    @staticmethod
    def forward(context, x, strength):
        context.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient): return -context.strength*gradient, None


class Head(nn.Module):
    def __init__(self, size: int, classes: int, repaired: bool):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(size, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(),
                                    nn.Linear(48, classes))
        self.repaired = repaired

    def forward(self, x):
        x = self.layers(x)
        return x if self.repaired else x.softmax(1)


class TwoDomains(nn.Module):
    def __init__(self, repaired: bool):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 12, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                                     nn.Conv2d(12, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.classifier, self.discriminator = Head(64, 10, repaired), Head(64, 2, repaired)
        self.strength = 0.

    def forward(self, source, target):
        both = Reverse.apply(self.encoder(torch.cat([source, target])), self.strength)
        return self.classifier(self.encoder(source)), self.discriminator(both)


def digits(n: int, shapes: torch.Tensor):
    "Ten shapes and their labels; and others of the target, which has another brightness and a background."
    label, other = torch.randint(10, (2, n))
    source, target = shapes[label].unsqueeze(1) + .4*torch.randn(n, 1, 8, 8), shapes[other].unsqueeze(1)
    return source, label, (target - .5 + torch.rand(n, 1, 1, 1)).abs() + .3*torch.rand(n, 1, 8, 8)


def build(repaired: bool) -> Parts:
    model = TwoDomains(repaired)
    shapes = (torch.rand(10, 8, 8) < .4).float()
    data = [digits(32, shapes) for _ in range(40)]

    def call(model, batch):
        source, label, target = batch
        digit, domain = model(source, target)
        is_target = torch.cat([torch.zeros(len(source)), torch.ones(len(target))]).long()
        return F.cross_entropy(digit, label) + F.cross_entropy(domain, is_target)

    return Parts(model, torch.optim.SGD(model.parameters(), lr=.01, momentum=.9), data, call=call,
                 valid=[digits(512, shapes)])


def train(parts: Parts, record) -> float:
    steps, epochs = 0, 6
    with record.on(parts.model, parts.optimizer):
        for _ in range(epochs):
            parts.model.train()
            for batch in parts.data:
                part = torch.tensor(steps/(epochs*len(parts.data)))
                parts.model.strength = (2/(1 + (-10*part).exp()) - 1).item()
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
                steps += 1
    source, label, _ = parts.valid[0]
    with torch.no_grad(): found = parts.model.classifier(parts.model.encoder(source)).argmax(1)
    return (found != label).float().mean().item()/.9
