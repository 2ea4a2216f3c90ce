"""An optimizer takes one minus the power of its factor, and then one minus that: it divides by a number that vanishes.

The report: an optimizer of a library goes well at first and its steps explode after a while. A user found the minus
one that was applied twice; the maintainer merged the change and could no longer reproduce the fault."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "kozistr/pytorch_optimizer#308", 2024
AREA, CAUSE = "optimizer and schedule", "other optimizer"
TRUE = {"learning rate too large", "loss rises", "outputs blow up", "gradients explode", "NaN or Inf", "spike"}
PLACE = ()


class Golden(torch.optim.Optimizer):
    "Steps like those of Adam, whose length follows from how large the gradients were so far."
    def __init__(self, params, lr: float, twice: bool):
        super().__init__(params, {"lr": lr, "betas": (.95, .999, .95)})
        self.twice = twice

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            group["count"] = count = group.get("count", 0) + 1
            first, second, third = group["betas"]
            scale = [1 - first**count, 1 - second**count]
            if self.twice: scale = [1 - each for each in scale]
            for p in group["params"]:
                if p.grad is None: continue
                state = self.state[p]
                for name in ("mean", "square", "length"): state.setdefault(name, torch.zeros_like(p))
                state["square"].mul_(second).addcmul_(p.grad, p.grad, value=1 - second)
                state["length"].mul_(third).add_(.2*state["square"]**.24, alpha=1 - third)
                state["mean"].mul_(first).addcmul_(p.grad, state["length"], value=1 - first)
                rate = min(group["lr"], 1/math.sqrt(count))
                p.sub_(rate*(state["mean"]/scale[0])/((state["square"]/scale[1]).sqrt() + 1e-8))


def digits(n: int, strokes):
    label = torch.randint(0, 10, (n,))
    return (strokes[label] + .7*torch.randn(n, 1, 8, 8)).clamp(0, 1), label


def build(repaired: bool) -> Parts:
    model = nn.Sequential(nn.Conv2d(1, 12, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(108, 32), nn.ReLU(),
                          nn.Linear(32, 10))
    strokes = (torch.rand(10, 1, 8, 8) > .6).float()
    image, label = digits(2048, strokes)
    data = list(zip(image.split(32), label.split(32)))
    return Parts(model, Golden(model.parameters(), 1., not repaired), data, F.cross_entropy,
                 valid=[digits(1024, strokes)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            for image, label in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(image), label)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    image, label = parts.valid[0]
    with torch.no_grad(): return (parts.model(image).argmax(1) != label).float().mean().item()/.9
