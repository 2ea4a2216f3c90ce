"""The factor of a schedule has the learning rate in it once more, so both optimizers run at its square.

The report: the function given to LambdaLR returns the rate itself where a factor is meant, in a classifier that is
adapted to a second domain. The maintainer confirmed it: the rate is multiplied twice."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "lhoyer/MIC#60", 2023
AREA, CAUSE = "optimizer and schedule", "schedule does not fit"
TRUE = {"learning rate too small", "loss does not fall"}
PLACE = ()
RATE = .03


class Reverse(torch.autograd.Function):
    "Passes its input on, and a part of the gradient with the other sign."
    @staticmethod
    def forward(ctx, x): return x.view_as(x)

    @staticmethod
    def backward(ctx, grad): return -.1*grad


def samples(n: int, shift: float):
    "Four classes by the signs of two products; a domain is moved by `shift`."
    x = torch.randn(n, 4)
    return x + shift, (x[:, 0]*x[:, 1] > 0).long() + 2*(x[:, 2]*x[:, 3] > 0)


def both_losses(model, batch):
    "The classes of the first domain, and which domain it is, against which the features work."
    x, y, other = batch
    known, moved = model["features"](x), model["features"](other)
    domain = model["domain"](Reverse.apply(torch.cat([known, moved]))).squeeze(1)
    which = torch.cat([torch.ones(len(x)), torch.zeros(len(other))])
    return F.cross_entropy(model["classes"](known), y) + F.binary_cross_entropy_with_logits(domain, which)


def build(repaired: bool) -> Parts:
    features = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
    domain = nn.Sequential(nn.Linear(48, 24), nn.ReLU(), nn.Linear(24, 1))
    model = nn.ModuleDict({"features": features, "classes": nn.Linear(48, 4), "domain": domain})
    optimizers = [torch.optim.SGD([*features.parameters(), *model["classes"].parameters()], lr=RATE, momentum=.9),
                  torch.optim.SGD(domain.parameters(), lr=RATE, momentum=.9)]
    (x, y), (other, _) = samples(1280, 0.), samples(1280, .2)
    data = [(x[i:i + 64], y[i:i + 64], other[i:i + 64]) for i in range(0, 1280, 64)]
    return Parts(model, optimizers, data, call=both_losses, valid=[samples(1024, .2)], repaired=repaired)


def train(parts: Parts, record) -> float:
    def factor(step): return (1 if parts.repaired else RATE)*(1 + .001*step)**-.75

    schedules = [torch.optim.lr_scheduler.LambdaLR(optimizer, factor) for optimizer in parts.optimizer]
    with record.on(parts.model, parts.optimizer):
        for _ in range(24):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                for optimizer in parts.optimizer: optimizer.zero_grad()
                loss.backward()
                for optimizer, schedule in zip(parts.optimizer, schedules):
                    optimizer.step()
                    schedule.step()
                record.step(loss)
    x, y = parts.valid[0]
    with torch.no_grad(): found = parts.model["classes"](parts.model["features"](x)).argmax(1)
    return (found != y).float().mean().item()/.75
