"""A net orders patients by their risk from times that are censored for half of them.

Habits of the source: the loss is Cox's partial likelihood within a batch, so that each row's loss depends on the others
and only differences of outputs matter; the output layer has no bias; batch norm and dropout; columns are standardised
with the numbers of the training data, yes and no columns are not; the target is a pair of time and event; training
stops when the validation loss has not fallen for a while, and the best weights are put back.
Error: share of pairs in the wrong order over one half, which is a guess: 0.43; untrained 1 to 1.1."""
import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "havakv/pycox examples/cox-ph.ipynb", 2019


def cox_loss(log_hazard, target):
    "Patients who live longest come first, so that a running sum holds all who are still at risk."
    time, event = target.T
    order = time.sort(descending=True)[1]
    log_hazard, event = log_hazard.view(-1)[order], event[order]
    top = log_hazard.max()
    at_risk = (log_hazard - top).exp().cumsum(0).add(1e-7).log().add(top)
    return -(log_hazard - at_risk).mul(event).sum().div(event.sum().clamp(min=1))


def patients(n):
    numbers, marks = torch.randn(n, 4)*torch.tensor([10., 2., 50., 1.]) + torch.tensor([60., 5., 200., 0.]), \
        (torch.rand(n, 3) < .3).float()
    age, dose = (numbers[:, 0] - 60)/10, (numbers[:, 2] - 200)/50
    risk = age + 1.2*marks[:, 0] - dose*marks[:, 1] + .5*dose**2
    death = -torch.rand(n).log()/(.1*risk.exp())
    leave = -torch.rand(n).log()/.15
    target = torch.stack([torch.minimum(death, leave), (death <= leave).float()], 1)
    return numbers, marks, target, risk


def in_wrong_order(score, target):
    "Share of the pairs that can be compared in which the one who dies first has the lower risk."
    time, event = target.T
    known = (time[:, None] < time) & (event[:, None] > 0)
    return (known & (score[:, None] < score)).sum()/known.sum()


def build(repaired: bool) -> Parts:
    sets = [patients(n) for n in (1500, 400, 600)]
    mean, deviation = sets[0][0].mean(0), sets[0][0].std(0)
    ready = [(torch.cat([(numbers - mean)/deviation, marks], 1), target) for numbers, marks, target, _ in sets]
    model = nn.Sequential()
    for before in (7, 32):
        model.extend([nn.Linear(before, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Dropout(.1)])
    model.append(nn.Linear(32, 1, bias=False))
    parts = Parts(model, torch.optim.Adam(model.parameters(), lr=.01), DataLoader(TensorDataset(*ready[0]), 256, True),
                  cox_loss, valid=[ready[1]])
    parts.test = ready[2]
    return parts


def train(parts: Parts, record) -> float:
    model, optimizer, best, waited = parts.model, parts.optimizer, float("inf"), 0
    with record.on(model, optimizer):
        for _ in range(60):
            model.train()
            for x, target in parts.data:
                optimizer.zero_grad()
                loss = parts.loss(model(x), target)
                loss.backward()
                optimizer.step()
                record.step(loss)
            model.eval()
            with torch.no_grad(): held_back = parts.loss(model(parts.valid[0][0]), parts.valid[0][1]).item()
            waited += 1
            if held_back < best: best, waited, weights = held_back, 0, copy.deepcopy(model.state_dict())
            if waited >= 10: break
    model.load_state_dict(weights)
    model.eval()
    x, target = parts.test
    with torch.no_grad(): return (in_wrong_order(model(x)[:, 0], target)/.5).item()
