"""A cross-entropy written by hand is called with the logits and the labels in the other order.

The report is the merged change of the author: the two arguments of the contrastive loss were exchanged. With the
labels inside the logarithm there is no minimum: all similarities are pushed down, those of the partners too."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "isaaccorley/detcon-pytorch#2", 2021
AREA, CAUSE = "loss and task", "the loss takes another form"
TRUE = {"first loss too high"}
PLACE = ()

seen, unwanted = torch.randn(2, 5, 24, generator=torch.Generator().manual_seed(0))


def views(n: int):
    "Two views of the same things: what they share, and more of what they do not."
    shared = torch.randn(n, 5)
    return [(shared @ seen).tanh() + 1.5*torch.randn(n, 5) @ unwanted + .1*torch.randn(n, 24) for _ in range(2)]


def cross_entropy(logits, labels): return -(labels*logits.log_softmax(1)).sum(1).mean()


def similarities(model, one, other): return F.normalize(model(one)) @ F.normalize(model(other)).T/.2


def build(repaired: bool) -> Parts:
    model = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 16))

    def call(model, batch):
        logits, labels = similarities(model, *batch), torch.eye(len(batch[0]))
        return cross_entropy(logits, labels) if repaired else cross_entropy(labels, logits)

    data = [views(64) for _ in range(30)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, call=call,
                 valid=[views(64) for _ in range(8)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(10):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad(): found = [similarities(parts.model, *pair).argmax(1) for pair in parts.valid]
    return torch.stack([(f != torch.arange(64)).float().mean() for f in found]).mean().item()
