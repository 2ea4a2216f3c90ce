"""Times to an event, some of them censored, as a mixture of Weibull distributions whose parts depend on the patient.

Habits of the source: shape and scale of one distribution are fitted to all patients first, and the net begins there;
double precision; the net adds little to those two through SELU, and its first layer has no bias and ends at 6; scores
of the parts are divided by 1000, so that they stay nearly equal for long; a lower bound in training, the likelihood
itself in validation; training ends when it rose three times, and the best weights are taken.
Score: the part of pairs in the wrong order. Below .3; about .5 for the untrained model."""
import copy

import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "autonlab/DeepSurvivalMachines dsm/utilities.py", 2020
COLUMNS, KINDS = 6, 3


class Mixture(nn.Module):
    def __init__(self, shape: float, scale: float):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(COLUMNS, 32, bias=False), nn.ReLU6())
        self.shape, self.scale = nn.Parameter(torch.full((KINDS,), shape)), nn.Parameter(torch.full((KINDS,), scale))
        self.shapes, self.scales, self.gate = nn.Linear(32, KINDS), nn.Linear(32, KINDS), nn.Linear(32, KINDS, False)
        self.selu = nn.SELU()

    def forward(self, x):
        h = self.net(x)
        return self.selu(self.shapes(h)) + self.shape, self.selu(self.scales(h)) + self.scale, self.gate(h)/1000


def logs(shape, scale, time):
    "The logarithms of the density and of the part that lives longer."
    longer = -(scale.exp()*time)**shape.exp()
    return shape + scale + (shape.exp() - 1)*(scale + time.log()) + longer, longer


def bound(said, time, event):
    shape, scale, gate = said
    density, longer = ((gate.softmax(1)*part).sum(1) for part in logs(shape, scale, time[:, None]))
    return -(density[event].sum() + longer[~event].sum())/len(time)


def likelihood(said, time, event):
    shape, scale, gate = said
    density, longer = ((gate.log_softmax(1) + part).logsumexp(1) for part in logs(shape, scale, time[:, None]))
    return -(density[event].sum() + longer[~event].sum())/len(time)


def call(model, batch): return bound(model(batch[0]), *batch[1:])


def patients(n: int):
    x = torch.randn(n, COLUMNS, dtype=torch.double)
    risk = x[:, 0] + x[:, 1]*(x[:, 2] > 0) - .5*x[:, 3]
    time = 2*(-torch.rand(n, dtype=torch.double).log()).pow(1/1.5)*(-risk/1.5).exp() + 1e-3
    censored = 5*torch.rand(n, dtype=torch.double) + 1e-3
    return x, torch.minimum(time, censored), time < censored


def fitted(time, event, valid):
    "Shape and scale of one distribution."
    both = torch.full((2,), -1., dtype=torch.double, requires_grad=True)
    optimizer, before, patience = torch.optim.Adam([both], lr=1e-2), torch.inf, 0
    def loss(time, event):
        density, longer = logs(both[0], both[1], time)
        return -(density[event].sum() + longer[~event].sum())/len(time)
    for _ in range(1000):
        optimizer.zero_grad()
        loss(time, event).backward()
        optimizer.step()
        with torch.no_grad(): held = loss(*valid[1:]).item()
        patience += abs(held - before) < 1e-4
        if patience == 3: break
        before = held
    return both.tolist()


def build(repaired: bool) -> Parts:
    data, valid = patients(800), patients(200)
    model = Mixture(*fitted(*data[1:], valid)).double()
    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-3), list(zip(*(c.split(100) for c in data))),
                 call=call, valid=[valid])


@torch.no_grad()
def disorder(model, batch) -> float:
    x, time, event = batch
    shape, scale, gate = model(x)
    risk = -(gate.softmax(1)*logs(shape, scale, torch.tensor(1.))[1].exp()).sum(1)
    known = event[:, None] & (time[:, None] < time)
    return (risk[:, None] < risk)[known].double().mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer, kept, costs, patience = parts.model, parts.optimizer, [], [torch.inf], 0
    with record.on(model, optimizer):
        for _ in range(80):
            for batch in parts.data:
                optimizer.zero_grad()
                loss = parts.call(model, batch)
                loss.backward()
                optimizer.step()
                record.step(loss)
            with torch.no_grad(): cost = likelihood(model(parts.valid[0][0]), *parts.valid[0][1:]).item()
            patience = patience + 1 if cost >= costs[-1] else 0
            costs.append(cost)
            kept.append(copy.deepcopy(model.state_dict()))
            if patience == 3: break
    model.load_state_dict(kept[min(range(len(kept)), key=lambda i: costs[i + 1])])
    return disorder(model, patients(600))
