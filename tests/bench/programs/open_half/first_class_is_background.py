"""The classes of a detector are numbered from zero, which the network takes for the background.

The report is the merged change: one class was never found, since labels have to start from one. With it the author got
a nearly perfect precision."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "microsoft/computervision-recipes#315", 2019
AREA, CAUSE = "data and labels", "labels wrongly encoded"
TRUE = set()
PLACE = ()

shapes = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(0))


def pictures(n: int):
    "Pictures of three by three cells; in each there is a thing of one of three classes, or nothing, which is -1."
    classes = torch.where(torch.rand(n, 3, 3) < .5, torch.randint(3, (n, 3, 3)), -1)
    cells = torch.where((classes < 0)[..., None, None], torch.zeros(4, 4), shapes[classes])
    return (cells.transpose(2, 3).reshape(n, 1, 12, 12) + .5*torch.randn(n, 1, 12, 12)), classes


def build(repaired: bool) -> Parts:
    model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 4, 4), nn.ReLU(),
                          nn.Conv2d(32, 4, 1))
    first = 1 if repaired else 0
    data = [(x, torch.where(classes < 0, 0, classes + first)) for x, classes in (pictures(32) for _ in range(30))]
    valid = [(x, classes + first, classes >= 0) for x, classes in (pictures(512),)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, F.cross_entropy, valid=valid)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(8):
            for x, labels in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), labels)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, labels, things = parts.valid[0]
    with torch.no_grad(): named = parts.model(x).argmax(1)
    found = (named > 0) & (named == labels)
    return 1 - found[things].float().mean().item()
