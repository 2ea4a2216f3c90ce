"""The loss of a tracker has parameters of its own, and the optimizer was made from the model's.

The report: the weights of detection and identity are to be learned, but a reader finds no optimizer that has them. The
author first shows where they are used, then agrees, and adds the parameters of the loss to the optimizer."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "ifzhang/FairMOT#19", 2020
AREA, CAUSE = "parameters", "not in the optimizer"
TRUE = set()
PLACE = ("loss.of_detection", "loss.of_identity", "loss.classifier", "loss.classifier.weight", "loss.classifier.bias")

people, side = 24, 12


class Tracker(nn.Module):
    "A map of where somebody is, and for each place a code of who it is."
    def __init__(self, size: int):
        super().__init__()
        self.base = nn.Sequential(nn.Conv2d(6, size, 3, padding=1), nn.BatchNorm2d(size), nn.ReLU())
        self.heat = nn.Sequential(nn.Conv2d(size, size, 3, padding=1), nn.ReLU(), nn.Conv2d(size, 1, 1))
        self.code = nn.Sequential(nn.Conv2d(size, size, 3, padding=1), nn.ReLU(), nn.Conv2d(size, 12, 1))

    def forward(self, x):
        x = self.base(x)
        return self.heat(x)[:, 0], self.code(x)


class TrackingLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.of_detection, self.of_identity = nn.Parameter(torch.tensor(-1.85)), nn.Parameter(torch.tensor(-1.05))
        self.classifier = nn.Linear(12, people)

    def who(self, code, at): return self.classifier(3*F.normalize(code[torch.arange(len(code)), :, at[:, 0], at[:, 1]]))

    def forward(self, found, heat, at, person):
        detection = F.binary_cross_entropy_with_logits(found[0], heat, pos_weight=torch.tensor(20.))
        identity = F.cross_entropy(self.who(found[1], at), person)
        return .5*((-self.of_detection).exp()*detection + (-self.of_identity).exp()*identity
                   + self.of_detection + self.of_identity)


class WithLoss(nn.Module):
    def __init__(self, model, loss):
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, x, *targets): return self.loss(self.model(x), *targets)


def frames(n: int, looks):
    "Somebody with a bright head in the noise; the clothes tell who it is."
    at, person = torch.randint(1, side - 1, (n, 2)), torch.randint(0, people, (n,))
    x, heat, every = .5*torch.randn(n, 6, side, side), torch.zeros(n, side, side), torch.arange(n)
    for low in (-1, 0, 1): x[every, :, at[:, 0] + low, at[:, 1]] += looks[person]
    heat[every, at[:, 0], at[:, 1]] = 1
    return x, heat, at, person


def build(repaired: bool) -> Parts:
    looks = torch.randn(people, 6)
    tracker = Tracker(24)
    optimizer = torch.optim.Adam(tracker.parameters(), lr=2e-3)
    model = WithLoss(tracker, TrackingLoss())
    if repaired: optimizer.add_param_group({"params": model.loss.parameters()})
    data = [frames(16, looks) for _ in range(40)]
    def call(model, batch): return model(*batch)
    return Parts(model, optimizer, data, call=call, valid=[frames(300, looks)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            parts.model.train()
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, _, at, person = parts.valid[0]
    parts.model.eval()
    with torch.no_grad():
        heat, code = parts.model.model(x)
        missed, who = heat.flatten(1).argmax(1) != at[:, 0]*side + at[:, 1], parts.model.loss.who(code, at).argmax(1)
    return (missed | (who != person)).float().mean().item()
