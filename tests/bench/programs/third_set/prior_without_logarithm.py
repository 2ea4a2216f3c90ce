"""The divergence between mean probabilities and a prior gets probabilities where it expects their logarithms.

The report is the merged change of a library for learning without labels: the mean probabilities are put into logarithms
before the divergence, since the function expects them there."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "lightly-ai/lightly#1341", 2023
AREA, CAUSE = "loss and task", "the loss takes another form"
TRUE = {"samples alike"}
PLACE = ()


prior = 1/torch.arange(1., 17)**.25
prior = prior/prior.sum()


class Siamese(nn.Module):
    "Unit vectors of pictures, and prototypes to which they are compared."
    def __init__(self, size: int):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(24, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, size))
        self.head = nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.Linear(size, size))
        self.prototypes = nn.Parameter(torch.randn(16, size))

    def forward(self, x): return F.normalize(self.head(self.backbone(x)), dim=1)


class PriorLoss(nn.Module):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired

    def forward(self, anchors, targets, prototypes):
        prototypes = F.normalize(prototypes, dim=1)
        likely = (anchors @ prototypes.T/.1).softmax(1)
        with torch.no_grad(): wanted = (targets @ prototypes.T/.025).softmax(1).repeat(2, 1)
        mean = likely.mean(0)
        apart = F.kl_div(mean.log() if self.repaired else mean, prior, reduction="sum")
        return -(wanted*likely.log()).sum(1).mean() + apart


def views(n: int, kinds: torch.Tensor):
    "Pictures of eight kinds, each in three versions of which two have missing parts."
    kind = torch.randint(len(kinds), (n,))
    clean = kinds[kind] + .4*torch.randn(n, 24)
    parts = ((clean + .1*torch.randn(n, 24))*(torch.rand(n, 24) < .6) for _ in range(2))
    return clean + .1*torch.randn(n, 24), *parts


def build(repaired: bool) -> Parts:
    model, kinds, loss = Siamese(24), torch.randn(8, 24), PriorLoss(repaired)
    teacher = copy.deepcopy(model).requires_grad_(False)

    def call(model, batch):
        whole, one, other = batch
        return loss(model(torch.cat([one, other])), teacher(whole), model.prototypes)

    parts = Parts(model, torch.optim.AdamW(model.parameters(), lr=1.5e-3), [views(64, kinds) for _ in range(40)],
                  call=call, valid=[views(600, kinds)])
    parts.teacher = teacher
    return parts


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            for batch in parts.data:
                with torch.no_grad():
                    for late, now in zip(parts.teacher.parameters(), parts.model.parameters()): late.lerp_(now, .02)
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    with torch.no_grad():
        code = parts.model.eval()(parts.valid[0][0])
        used = (code @ F.normalize(parts.model.prototypes, dim=1).T/.1).softmax(1).mean(0)
    return (used - prior).abs().sum().item()/2  # how far the use of the prototypes is from the prior
