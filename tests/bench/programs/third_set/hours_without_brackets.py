"""The hours are to be divided by their number, but the bracket is at the wrong place, so they run from 0 to 49.

The report is the merged change of a book's first example: the error in the scaling made the inputs wrong, and it stays
unseen because the curve still looks fitted."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "swarmapytorch/book_DeepLearning_in_PyTorch_Source#7", 2019
AREA, CAUSE = "data and labels", "inputs not scaled"
TRUE = {"saturated"}
PLACE = ("0", "1")


def build(repaired: bool) -> Parts:
    model = nn.Sequential(nn.Linear(1, 10), nn.Sigmoid(), nn.Linear(10, 1))
    hour = torch.arange(50.).unsqueeze(1)
    wave = torch.sin(6.28*hour/40 + torch.rand(1))
    bikes = wave + .1*torch.randn(50, 1)
    x = hour/50 if repaired else hour/(50/50)
    data, valid = [(x, bikes)]*4000, [(x, wave)]
    return Parts(model, torch.optim.SGD(model.parameters(), lr=.2), data, F.mse_loss, valid=valid)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for x, bikes in parts.data:
            loss = parts.loss(parts.model(x), bikes)
            parts.optimizer.zero_grad()
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    x, wave = parts.valid[0]
    with torch.no_grad(): return (F.mse_loss(parts.model(x), wave)/wave.var()).item()
