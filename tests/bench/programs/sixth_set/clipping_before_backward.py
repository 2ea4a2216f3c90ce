"""Gradients are clipped before the backward pass, when there are none, so nothing limits those of a step.

The report: in a method that weighs several tasks, the gradient norm is clipped before `loss.backward()`. The author
answered that this is a bug and that it has to stand after it."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "Cranial-XIX/FAMO#4", 2024
AREA, CAUSE = "loop", "parts in a wrong order"
TRUE = {"gradients explode", "spike", "outputs blow up", "learning rate too large", "loss does not fall",
        "dead units", "constant output"}
PLACE = ()
TASKS = 4


class Properties(nn.Module):
    "One body for several properties of a molecule, each with a head."
    def __init__(self, features: int):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.heads = nn.ModuleList(nn.Linear(64, 1) for _ in range(TASKS))

    def forward(self, x):
        x = self.body(x)
        return torch.cat([head(x) for head in self.heads], 1)


def molecules(n: int, weight):
    "Properties that follow the features; a few molecules are ten times as large as the others."
    x = torch.randn(n, 8)*(1 + 9*(torch.rand(n, 1) < .03))
    return x, (x @ weight[0]).tanh() + (x @ weight[1]).sin()


def losses(model, batch):
    x, y = batch
    return (model(x) - y).square().mean(0)


class Weights:
    "Weights of the tasks, so that the logarithms of all losses fall at one pace."
    def __init__(self):
        self.w = torch.zeros(TASKS, requires_grad=True)
        self.optimizer = torch.optim.Adam([self.w], lr=.025, weight_decay=1e-3)

    def weigh(self, found):
        share = self.w.softmax(0).detach()
        scale = (share/found.detach()).sum()
        return (found.log()*share/scale).sum()

    def update(self, before, after):
        slower = before.log() - after.log()
        self.optimizer.zero_grad()
        self.w.grad = torch.autograd.grad(self.w.softmax(0), self.w, slower)[0]
        self.optimizer.step()


def build(repaired: bool) -> Parts:
    weight = torch.randn(2, 8, TASKS)/2
    x, y = molecules(1024, weight)
    model = Properties(8)
    return Parts(model, torch.optim.SGD(model.parameters(), lr=.1, momentum=.9), list(zip(x.split(32), y.split(32))),
                 call=lambda model, batch: losses(model, batch).mean(), valid=[molecules(512, weight)],
                 repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer, weights = parts.model, parts.optimizer, Weights()
    with record.on(model, optimizer):
        for _ in range(10):
            for batch in parts.data:
                found = losses(model, batch)
                loss = weights.weigh(found)
                optimizer.zero_grad()
                if not parts.repaired: nn.utils.clip_grad_norm_(model.parameters(), 1.)
                loss.backward()
                if parts.repaired: nn.utils.clip_grad_norm_(model.parameters(), 1.)
                optimizer.step()
                with torch.no_grad(): after = losses(model, batch)
                weights.update(found.detach(), after)
                record.step(loss)
    x, y = parts.valid[0]
    with torch.no_grad(): return ((model(x) - y).square().mean(0)/y.var(0)).mean().item()
