"""The optimizer of a spiking network gets the weights of the input and of the readout, and not the recurrent ones.

The report, on a tutorial: the recurrent weights are not updated. The author called it a bug and mended it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "fzenke/spytorch#7", 2021
AREA, CAUSE = "parameters", "not in the optimizer"
TRUE = {"not trained"}
PLACE = ("v1",)

inputs, steps, classes = 20, 24, 4


class Spike(torch.autograd.Function):
    "A step, with the slope of a fast sigmoid."
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).float()

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        return grad/(5*x.abs() + 1)**2


class Spiking(nn.Module):
    "Hidden neurons that leak, fire and excite each other, and a readout that leaks."
    def __init__(self, hidden: int):
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(inputs, hidden)*.6/inputs**.5)
        self.v1 = nn.Parameter(torch.randn(hidden, hidden)*.2/hidden**.5)
        self.w2 = nn.Parameter(torch.randn(hidden, classes)*.5/hidden**.5)

    def forward(self, x):
        from_input = x @ self.w1
        current = voltage = fired = torch.zeros(len(x), self.w1.shape[1])
        flow = out = torch.zeros(len(x), classes)
        outs = []
        for t in range(steps):
            heard = from_input[:, t] + fired @ self.v1
            fired = Spike.apply(voltage - 1)
            current, voltage = .6*current + heard, .8*voltage + current - fired.detach()
            flow, out = .6*flow + fired @ self.w2, .9*out + flow
            outs.append(out)
        return torch.stack(outs, 1).amax(1)


def trains(n: int):
    "Two bursts, early and late, each in one half of the channels; the class is which two."
    early, late = torch.randint(0, 2, (2, n))
    rate = torch.full((n, steps, inputs), .03)
    for burst, start in (early, 2), (late, 15):
        half = (torch.arange(inputs) < inputs//2) == (burst == 0)[:, None]
        rate[:, start:start + 6] += .35*half[:, None]
    return (torch.rand_like(rate) < rate).float(), 2*early + late


def build(repaired: bool) -> Parts:
    model = Spiking(32)
    trained = [model.w1, model.w2, model.v1] if repaired else [model.w1, model.w2]
    data = [trains(64) for _ in range(30)]
    return Parts(model, torch.optim.Adamax(trained, lr=5e-3), data, F.cross_entropy, valid=[trains(400)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6):
            for x, y in parts.data:
                loss = parts.loss(parts.model(x), y)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, y = parts.valid[0]
    with torch.no_grad(): return (parts.loss(parts.model(x), y)/torch.tensor(float(classes)).log()).item()
