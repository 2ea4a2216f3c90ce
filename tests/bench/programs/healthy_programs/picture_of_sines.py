"""A net of sines learns one picture as a function of the place.

Habits of the source: the first layer has weights uniform by the number of inputs, the others narrower by the frequency
of 30 that multiplies them; the last layer is linear; the model clones the places, makes them need a gradient and
returns them too; the same single batch, of all pixels, in each step; Adam with a low rate and no schedule.
Error: squared error at places between the pixels over the variance of the picture: 0.007; untrained 1."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "vsitzmann/siren explore_siren.ipynb", 2020


class SineLayer(nn.Module):
    def __init__(self, before, after, first=False, omega=30):
        super().__init__()
        self.omega, self.linear = omega, nn.Linear(before, after)
        bound = 1/before if first else (6/before)**.5/omega
        with torch.no_grad(): self.linear.weight.uniform_(-bound, bound)

    def forward(self, x): return torch.sin(self.omega*self.linear(x))


class Siren(nn.Module):
    def __init__(self, before, hidden, layers, after):
        super().__init__()
        last = nn.Linear(hidden, after)
        with torch.no_grad(): last.weight.uniform_(-(6/hidden)**.5/30, (6/hidden)**.5/30)
        self.net = nn.Sequential(SineLayer(before, hidden, first=True),
                                 *(SineLayer(hidden, hidden) for _ in range(layers)), last)

    def forward(self, places):
        places = places.clone().detach().requires_grad_(True)
        return self.net(places), places


def places(side, shift=0.):
    line = torch.linspace(-1, 1, side)[:side - (shift > 0)] + shift
    return torch.stack(torch.meshgrid(line, line, indexing="ij"), -1).reshape(1, -1, 2)


def picture():
    "A smooth picture of twelve waves, with values about between -1 and 1."
    waves, phase = torch.randn(12, 2)*5, 6.283*torch.rand(12)
    return lambda at: .4*(at @ waves.T + phase).sin().sum(-1, keepdim=True)


def call(model, batch):
    at, value = batch
    found, _ = model(at)
    return ((found - value)**2).mean()


def build(repaired: bool) -> Parts:
    value, side = picture(), 32
    between = places(side, 1/(side - 1))
    model = Siren(2, 64, 2, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    return Parts(model, optimizer, [(places(side), value(places(side)))], call=call, valid=[(between, value(between))])


def train(parts: Parts, record) -> float:
    (at, value), = parts.data
    with record.on(parts.model, parts.optimizer):
        for _ in range(200):
            found, _ = parts.model(at)
            loss = ((found - value)**2).mean()
            parts.optimizer.zero_grad()
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    with torch.no_grad(): return (call(parts.model, parts.valid[0])/parts.valid[0][1].var()).item()
