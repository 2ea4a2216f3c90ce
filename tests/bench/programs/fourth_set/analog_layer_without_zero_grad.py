"""The first example of a library for analog layers never clears the gradients between its steps.

The report: in the examples with one and with several layers the loss falls for some steps and then rises again; with a
call of zero_grad in each step it falls throughout. A maintainer had noticed it, too, and agreed."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "IBM/aihwkit#446", 2022
AREA, CAUSE = "loop", "gradients not cleared"
TRUE = {"loss rises"}
PLACE = ()


class Analog(nn.Linear):
    "A layer of analog devices: its weights are held within a range and are read with some noise."
    def forward(self, x):
        with torch.no_grad(): self.weight.clamp_(-.6, .6)
        return F.linear(x, self.weight + .01*torch.randn_like(self.weight), self.bias)


def build(repaired: bool) -> Parts:
    x = torch.rand(80, 4)
    y = F.linear(x, .5*(2*torch.rand(2, 4) - 1), torch.tensor([.3, -.2]))
    model = Analog(4, 2)
    return Parts(model, torch.optim.SGD(model.parameters(), lr=.3), [(x[:16], y[:16])], F.mse_loss,
                 valid=[(x[16:], y[16:])], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    x, y = parts.data[0]
    with record.on(model, optimizer):
        for _ in range(200):
            if parts.repaired: optimizer.zero_grad()
            loss = parts.loss(model(x), y)
            loss.backward()
            optimizer.step()
            record.step(loss)
    x, y = parts.valid[0]
    with torch.no_grad(): return (F.mse_loss(model(x), y)/y.var(0).mean()).item()
