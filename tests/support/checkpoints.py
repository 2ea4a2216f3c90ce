"Small models for tests of checkpoints, and what is done to their state dicts."
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, n=3):
        super().__init__()
        self.first, self.norm = nn.Linear(5, 6), nn.BatchNorm1d(6)
        self.inner, self.last = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6)), nn.Linear(6, n)

    def forward(self, x): return self.last(self.inner(self.norm(self.first(x)).relu()))


class Attends(nn.Module):
    "Four matrices that no shape tells apart."
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(6, 6) for _ in range(4))

    def forward(self, x): return self.o((self.q(x) @ self.k(x).mT).softmax(-1) @ self.v(x))


def net(n=3):
    torch.manual_seed(0)
    return Net(n)


@torch.no_grad()
def filled(model, seed):
    "With numbers that no other tensor has."
    g = torch.Generator().manual_seed(seed)
    for t in model.state_dict().values():
        if t.is_floating_point(): t.copy_(torch.rand(t.shape, generator=g) + .1)
        else: t.fill_(seed)
    return model


def renamed(form):
    "A function that gives each tensor another name."
    return lambda given: {form.format(name): t for name, t in given.items()}
