"""Small networks, and what tests do with them, that more than one file of tests needs."""
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hooklab.training.callback import Callback


class Net(nn.Module):
    "Residual, in-place, reused: what breaks naive hooks."
    def __init__(self):
        super().__init__()
        self.a, self.act, self.b = nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4)

    def forward(self, x): return x + self.b(self.act(self.a(x) + 1)) + self.act(self.b(x))


class Returns(nn.Module):
    "Returns what a function makes of its inputs."
    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, *args, **kwargs): return self.make(*args, **kwargs)


class Makes(nn.Module):
    "Returns what a function makes of the output of a layer."
    def __init__(self, make):
        super().__init__()
        self.lin, self.make = nn.Linear(4, 4), make

    def forward(self, x): return self.make(self.lin(x))


class Skips(nn.Module):
    "Has a layer that never runs."
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(1, 1), nn.Linear(1, 1)

    def forward(self, x): return self.a(x)


class Pair(nn.Module):
    def forward(self, x): return {"twice": (x*2, None), "number": torch.arange(len(x))}


class Checkpointed(nn.Module):
    "Another network, without keeping what is inside it for the backward pass."
    def __init__(self, net: nn.Module, reentrant: bool):
        super().__init__()
        self.net, self.reentrant = net, reentrant

    def forward(self, x): return checkpoint(self.net, x, use_reentrant=self.reentrant)


class Twins(tuple):
    "A tuple that cannot be made again from one list."
    def __new__(cls, a, b): return super().__new__(cls, (a, b))


def step(net: nn.Module, x: Tensor) -> list[Tensor]:
    "Output and all gradients of one step, from scratch."
    net.zero_grad(set_to_none=True)
    x.grad = None
    y = net(x)
    y.pow(2).sum().backward()
    return [y.detach(), x.grad, *(p.grad for p in net.parameters())]


def all_equal(a: list[Tensor], b: list[Tensor]) -> bool: return len(a) == len(b) and all(map(torch.equal, a, b))


class Raises(Callback):
    "Raises at the n-th occurrence of an event, in training or validation alike."
    def __init__(self, event, error, order=0, n=0):
        self.order, self.error, self.left = order, error, n
        setattr(self, event, self.act)

    def act(self):
        self.left -= 1
        if self.left == -1: raise self.error
