"""Gradients are cleared after the backward pass and before the step, so the network trains on nothing.

The report: in the trainer of a self-supervised method for pictures, `zero_grad` stands right before the step of the
optimizer. The maintainer agreed that this is a bug."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "lucidrains/byol-pytorch#93", 2024
AREA, CAUSE = "loop", "step before backward"
TRUE = {"no step", "loss does not fall", "gradients thrown away", "not trained"}
PLACE = ("encoder", "projector", "predictor")


def layers(*sizes: int):
    parts = []
    for before, after in zip(sizes, sizes[1:]): parts += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()]
    return nn.Sequential(*parts[:-2])


class TwoViews(nn.Module):
    "Predicts for one view what a slow copy says of the other."
    def __init__(self):
        super().__init__()
        self.encoder, self.projector, self.predictor = layers(40, 64, 12), layers(12, 32, 12), layers(12, 32, 12)
        self.slow = copy.deepcopy(nn.Sequential(self.encoder, self.projector)).requires_grad_(False)

    def forward(self, a, b):
        mine = self.predictor(self.projector(self.encoder(torch.cat([a, b]))))
        with torch.no_grad(): other = self.slow(torch.cat([b, a]))
        return (2 - 2*F.cosine_similarity(mine, other)).mean()

    @torch.no_grad()
    def follow(self, beta: float):
        fast = [*self.encoder.parameters(), *self.projector.parameters()]
        for old, new in zip(self.slow.parameters(), fast): old.lerp_(new, 1 - beta)


def things(n: int, centre, mix):
    "Features of things of eight classes, and what does not belong to them: strong noise in other directions."
    y = torch.randint(len(centre), (n,))
    return (centre[y] + .3*torch.randn(n, 4)) @ mix, y


def view(x, noise): return x + 1.5*torch.randn(len(x), len(noise)) @ noise + .2*torch.randn_like(x)


def build(repaired: bool) -> Parts:
    model, mix, noise = TwoViews(), torch.randn(4, 40), torch.randn(8, 40)
    centre = torch.randn(8, 4)
    x, y = things(1024, centre, mix)
    data = [(view(part, noise), view(part, noise)) for _ in range(12) for part in x.split(64)]
    optimizer = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=3e-3)
    few, label = things(256, centre, mix)
    test, right = things(512, centre, mix)
    return Parts(model, optimizer, data, call=lambda model, batch: model(*batch), repaired=repaired,
                 valid=[(view(few, noise), label), (view(test, noise), right)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for batch in parts.data:
            if parts.repaired: optimizer.zero_grad()
            loss = parts.call(model, batch)
            loss.backward()
            if not parts.repaired: optimizer.zero_grad()
            optimizer.step()
            model.follow(.99)
            record.step(loss)
    model.eval()
    (few, label), (test, right) = parts.valid
    with torch.no_grad(): few, test = model.encoder(few), model.encoder(test)
    near = torch.cdist(test, few).topk(5, largest=False).indices
    return (label[near].mode(1).values != right).float().mean().item()*8/7
