"""The averaged teacher is in eval mode and only its parameters are averaged, so that its batch norm knows no data.

The report: experiments with a mean teacher for sounds came out far worse with the library's handler of moving averages
than without. The author found that the statistics of batch norm do not follow; a merged change has an option that
copies or averages them too."""
import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pytorch/ignite#2590", 2022
AREA, CAUSE = "modes", "batch norm"
TRUE = set()
PLACE = ()


class Tagger(nn.Module):
    "Which of four sounds are in a clip."
    def __init__(self, size: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(8, size, 3, padding=1), nn.BatchNorm1d(size), nn.ReLU(), nn.MaxPool1d(2),
                                    nn.Conv1d(size, size, 3, padding=1), nn.BatchNorm1d(size), nn.ReLU())
        self.head = nn.Linear(size, 4)

    def forward(self, x): return self.head(self.layers(x).mean(2))


def clips(n: int):
    "Loud clips of 16 moments and 8 bands; a sound is a short pattern in its two bands."
    tags = (torch.rand(n, 4) < .4).float()
    x = 2 + torch.randn(n, 8, 16)
    start = torch.randint(0, 13, (n,))
    for i in range(4): x[torch.arange(n)[:, None], 2*i, start[:, None] + torch.arange(4)] += 2.5*tags[:, i:i + 1]
    return 4*x, tags


def build(repaired: bool) -> Parts:
    student = Tagger(24)
    x, tags = clips(512)
    data = [(x[i:i + 32], tags[i:i + 32], clips(32)[0]) for i in range(0, 512, 32)]
    optimizer = torch.optim.Adam(student.parameters(), lr=3e-3)

    def call(model, batch):
        x, tags, other = batch
        output = model(x)
        loss = F.binary_cross_entropy_with_logits(output, tags)
        with torch.no_grad(): target = parts.teacher(other).sigmoid()
        return loss + .5*F.mse_loss(model(other).sigmoid(), target)

    parts = Parts(student, optimizer, data, call=call, valid=[clips(512)], repaired=repaired)
    parts.teacher = copy.deepcopy(student).eval()
    return parts


@torch.no_grad()
def average(teacher: nn.Module, student: nn.Module, repaired: bool, keep: float = .95):
    for mean, new in zip(teacher.parameters(), student.parameters()): mean.mul_(keep).add_(new, alpha=1 - keep)
    if repaired:
        for old, new in zip(teacher.buffers(), student.buffers()): old.copy_(new)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(20):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                average(parts.teacher, parts.model, parts.repaired)
                record.step(loss)
    x, tags = parts.valid[0]
    with torch.no_grad(): return F.binary_cross_entropy_with_logits(parts.teacher(x), tags).item()/math.log(2)
