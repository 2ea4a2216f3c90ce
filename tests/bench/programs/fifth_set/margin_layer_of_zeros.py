"""The layer of a large-margin loss makes its weights and never fills them, so they are what the memory has: zeros.

The report: the layer's method for its first weights is not called where the layer is made. Its weights are zeros and
the loss becomes NaN; to call that method is the way out, as the reporter answered when others met the same."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "amirhfarzaneh/lsoftmax-pytorch#7", 2020
AREA, CAUSE = "initialisation", "not initialised"
TRUE = {"NaN or Inf", "units alike", "loss does not fall", "cannot learn by heart"}
PLACE = ("last", "last.weight")

kinds = 5


class LargeMargin(nn.Module):
    "A linear layer; in training, the angle between a sample and the weights of its own kind counts twice."
    def __init__(self, size: int, kinds: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size, kinds))    # new memory, which holds zeros here

    def reset_parameters(self): nn.init.kaiming_normal_(self.weight)

    def forward(self, x, kind=None):
        score = x @ self.weight
        if not self.training: return score
        own = score.gather(1, kind[:, None])[:, 0]
        long = x.norm(dim=1)*self.weight[:, kind].norm(dim=0)
        cosine = (own/long).clamp(-.999, .999)
        turns = (cosine.acos()*2/math.pi).floor().detach()
        doubled = (1 - 2*turns)*(2*cosine**2 - 1) - 2*turns
        mixed = (long*doubled + 5*own)/6
        return score.scatter(1, kind[:, None], mixed[:, None])


class Net(nn.Module):
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.PReLU(), nn.MaxPool2d(2),
                                    nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.PReLU(), nn.MaxPool2d(2),
                                    nn.Flatten(), nn.Linear(24*9, size), nn.BatchNorm1d(size))
        self.last = LargeMargin(size, kinds)
        if repaired: self.last.reset_parameters()

    def forward(self, x, kind=None): return self.last(self.layers(x), kind)


def digits(n: int, shapes):
    kind = torch.randint(0, kinds, (n,))
    return (shapes[kind] + 1.5*torch.randn(n, 12, 12))[:, None], kind


def margin_loss(model, batch):
    x, kind = batch
    return F.cross_entropy(model(x, kind), kind)


def build(repaired: bool) -> Parts:
    shapes, model = (torch.rand(kinds, 12, 12) < .4).float(), Net(16, repaired)
    optimizer = torch.optim.SGD(model.parameters(), lr=.02, momentum=.9, weight_decay=5e-4)
    return Parts(model, optimizer, [digits(64, shapes) for _ in range(40)], call=margin_loss,
                 valid=[digits(500, shapes)])


def train(parts: Parts, record) -> float:
    schedule = torch.optim.lr_scheduler.MultiStepLR(parts.optimizer, [2, 3])
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            parts.model.train()
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
            schedule.step()
    x, kind = parts.valid[0]
    parts.model.eval()
    with torch.no_grad(): wrong = parts.model(x).argmax(1) != kind
    return wrong.float().mean().item()*kinds/(kinds - 1)
