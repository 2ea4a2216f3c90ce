"""The optimizer of each participant steps after its loop over the batches, so only the last batch counts.

The report: in a program in which several participants train together, the step stands one level too far to the left.
The maintainer agreed, and the change that makes a step for each batch was merged."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "XinyiYS/Gradient-Driven-Rewards-to-Guarantee-Fairness-in-Collaborative-Machine-Learning#3", 2024
AREA, CAUSE = "loop", "no step"
TRUE = set()
PLACE = ()
PARTICIPANTS = 4


def digits(n: int, shapes):
    "One of ten small shapes in noise."
    y = torch.randint(0, 10, (n,))
    return shapes[y] + .8*torch.randn(n, 1, 8, 8), y


def loss_of_the_first(model, batch):
    x, y = batch
    return F.cross_entropy(model[0](x), y)


def build(repaired: bool) -> Parts:
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 32),
                        nn.ReLU(), nn.Linear(32, 10))
    model, shapes = nn.ModuleList(copy.deepcopy(net) for _ in range(PARTICIPANTS)), torch.randn(10, 1, 8, 8)
    optimizers = [torch.optim.SGD(each.parameters(), lr=.1) for each in model]
    x, y = digits(640, shapes)
    data = list(zip(x.split(32), y.split(32)))
    return Parts(model, optimizers, data, call=loss_of_the_first, valid=[digits(1024, shapes)], repaired=repaired)


def average(model):
    "What the participants have learnt is put together and given back to each."
    states = [each.state_dict() for each in model]
    mean = {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}
    for each in model: each.load_state_dict(mean)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(30):
            for k, (net, optimizer) in enumerate(zip(parts.model, parts.optimizer)):
                for x, y in parts.data[k::PARTICIPANTS]:
                    optimizer.zero_grad()
                    loss = F.cross_entropy(net(x), y)
                    loss.backward()
                    if parts.repaired: optimizer.step()
                    record.step(loss)
                if not parts.repaired: optimizer.step()
            average(parts.model)
    x, y = parts.valid[0]
    with torch.no_grad(): return (parts.model[0](x).argmax(1) != y).float().mean().item()/.9
