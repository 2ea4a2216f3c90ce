"""Gradients of four batches are to be gathered, and are cleared just before the backward of the fourth.

The report: in the example of the handbook both the clearing and the step are tied to every fourth iteration, the
clearing before backward. It should come after the step. The maintainer confirmed the fault and changed the example."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pytorch/ignite#583", 2019
AREA, CAUSE = "loop", "accumulation"
TRUE = {"gradients thrown away", "learning rate too small"}
PLACE = ()

gathered, kinds = 4, 10


def pictures(n: int, looks):
    "Shapes of ten kinds at one of nine places, in noise."
    kind, at = torch.randint(0, kinds, (n,)), torch.randint(0, 3, (n, 2)).tolist()
    x = .5*torch.randn(n, 1, 10, 10)
    for i, (y, z) in enumerate(at): x[i, :, y:y + 8, z:z + 8] += looks[kind[i]]
    return x, kind


def build(repaired: bool) -> Parts:
    looks = F.interpolate(torch.randn(kinds, 1, 4, 4), size=8)
    model = nn.Sequential(nn.Conv2d(1, 12, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(12, 24, 3), nn.ReLU(),
                          nn.Flatten(), nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, kinds))
    data = [pictures(8, looks) for _ in range(120)]
    optimizer = torch.optim.SGD(model.parameters(), lr=.1, momentum=.5)
    return Parts(model, optimizer, data, F.cross_entropy, valid=[pictures(500, looks)], repaired=repaired)


def update(parts: Parts, iteration: int, batch):
    "What is done with each batch; iterations are counted from one."
    model, optimizer, due = parts.model, parts.optimizer, iteration % gathered == 0
    model.train()
    if due and not parts.repaired: optimizer.zero_grad()
    x, kind = batch
    loss = parts.loss(model(x), kind)/gathered
    loss.backward()
    if due:
        optimizer.step()
        if parts.repaired: optimizer.zero_grad()
    return loss, due


def train(parts: Parts, record) -> float:
    iteration = 0
    with record.on(parts.model, parts.optimizer):
        for _ in range(3):
            for batch in parts.data:
                iteration += 1
                loss, due = update(parts, iteration, batch)
                if due: record.step(loss)
    parts.model.eval()
    x, kind = parts.valid[0]
    with torch.no_grad(): return (parts.model(x).argmax(1) != kind).float().mean().item()
