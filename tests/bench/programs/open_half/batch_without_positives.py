"""The weight of positive samples is the number of all divided by theirs, which is zero in some small batches.

The report: one loss of a network for actions in videos is sometimes NaN with a batch of one. The author found that no
sample is above the threshold then; the maintainer agreed, and advised to leave such a batch out."""
import math

import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "JJBOY/BMN-Boundary-Matching-Network#23", 2020
AREA, CAUSE = "precision", "NaN or Inf"
TRUE = set()
PLACE = ()


class Proposals(nn.Module):
    "How probable it is that an action goes on at each moment."
    def __init__(self, size: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(8, size, 3, padding=1), nn.ReLU(), nn.Conv1d(size, size, 3, padding=1),
                                    nn.ReLU(), nn.Conv1d(size, 1, 1), nn.Sigmoid())

    def forward(self, x): return self.layers(x)[:, 0]


def balanced(output, overlap):
    "Cross-entropy in which positive and negative moments weigh the same."
    positive = (overlap > .7).float()
    ratio = positive.numel()/positive.sum()
    rare, often = .5*ratio, .5*ratio/(ratio - 1)
    small = 1e-6
    return -(rare*positive*(output + small).log() + often*(1 - positive)*(1 - output + small).log()).mean()


def videos(n: int):
    "Videos of 32 moments and eight features, in most of which an action starts somewhere."
    start, length = torch.randint(0, 24, (n, 1)), torch.randint(4, 9, (n, 1))
    moment = torch.arange(32)
    acts = (moment >= start) & (moment < start + length) & (torch.rand(n, 1) < .85)
    x = torch.randn(n, 8, 32)
    x[:, :3] += acts[:, None]*torch.tensor([1.2, -1, .8])[:, None]
    return x, torch.where(acts, 1 - .25*torch.rand(n, 32), .5*torch.rand(n, 32))


def build(repaired: bool) -> Parts:
    model = Proposals(24)
    x, overlap = videos(400)
    data = [(x[i:i + 2], overlap[i:i + 2]) for i in range(0, 400, 2)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-3), data, balanced, valid=[videos(256)],
                 repaired=repaired)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(3):
            for x, overlap in parts.data:
                if parts.repaired and not (overlap > .7).any(): continue
                loss = parts.loss(parts.model(x), overlap)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, overlap = parts.valid[0]
    with torch.no_grad(): return parts.loss(parts.model(x), overlap).item()/math.log(2)
