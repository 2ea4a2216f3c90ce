"""Convolutions are replaced by quantised ones after the optimizer was made, so it has the weights of the old ones.

The report is by the author of the code, labelled as a bug: define the optimizer after the convolutions have been
replaced."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "hustzxd/EfficientPyTorch#1", 2020
AREA, CAUSE = "parameters", "other parameters in the optimizer"
TRUE = {"not in the optimizer", "not trained"}
PLACE = ("layers.0", "layers.3", "layers.6")

kinds = 6


class Round(torch.autograd.Function):
    "Rounds, and lets the gradient through."
    @staticmethod
    def forward(ctx, x): return x.round()

    @staticmethod
    def backward(ctx, gradient): return gradient


class QuantConv(nn.Conv2d):
    "A convolution with weights and inputs of few bits, in which the smallest weights are zero."
    def forward(self, x):
        step, unit = self.weight.detach().abs().max()/7, x.detach().abs().max()/31
        kept = self.weight.abs() > self.weight.detach().abs().flatten().kthvalue(self.weight.numel()//3).values
        return F.conv2d(Round.apply(x/unit)*unit, Round.apply(self.weight*kept/step)*step, self.bias, self.stride,
                        self.padding)


def replace(model: nn.Module):
    for name, module in model.named_children():
        if type(module) is nn.Conv2d:
            new = QuantConv(module.in_channels, module.out_channels, module.kernel_size, module.stride, module.padding,
                            bias=False)
            setattr(model, name, new)
        else: replace(module)


class Net(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        def layer(before, after, stride):
            return nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()
        self.layers = nn.Sequential(*layer(3, size, 1), *layer(size, size, 2), *layer(size, size, 2))
        self.fc = nn.Linear(size, kinds)

    def forward(self, x): return self.fc(self.layers(x).mean((2, 3)))


def pictures(n: int, looks):
    "A small pattern anywhere in noise."
    kind = torch.randint(0, kinds, (n,))
    x = .5*torch.randn(n, 3, 12, 12)
    for i, (top, left) in enumerate(torch.randint(0, 9, (n, 2)).tolist()):
        x[i, :, top:top + 4, left:left + 4] += looks[kind[i]]
    return x, kind


def build(repaired: bool) -> Parts:
    looks = 1.5*torch.randn(kinds, 3, 4, 4)
    model = Net(12)
    if repaired: replace(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=.1, momentum=.9, weight_decay=1e-4)
    if not repaired: replace(model)
    data = [pictures(32, looks) for _ in range(50)]
    return Parts(model, optimizer, data, F.cross_entropy, valid=[pictures(400, looks)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            parts.model.train()
            for x, kind in parts.data:
                loss = parts.loss(parts.model(x), kind)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, kind = parts.valid[0]
    parts.model.eval()
    with torch.no_grad(): return (parts.model(x).argmax(1) != kind).float().mean().item()*kinds/(kinds - 1)
