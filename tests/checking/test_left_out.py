"Targets that a loss leaves out by their size, and those that it leaves out rightly."
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl

N = 16


def said(counts, target=torch.randn, loss=None, by_call=True):
    "What is said of a model with a number for each of 20 places, where the loss counts some of them."
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 20))
    batches = [(torch.randn(N, 8), target(N, 20)) for _ in range(2)]
    loss = loss or (lambda out, y: ((out - y).abs()*counts(y)).sum()/counts(y).sum())
    def call(model, batch): return loss(model(batch[0]), batch[1])
    found = hl.preflight(model, None if by_call else loss, batches, overfit=False, call=call if by_call else None)
    return [(f.sure, f.evidence) for f in found if f.what == "labels left out"]


def measured(*shape): return torch.randn(shape)*(torch.rand(shape) > .2)


def chosen(out, y): return F.mse_loss(out[y > 0], y[y > 0])
def in_a_where(out, y): return torch.where(y < .2, (out - y)**2, torch.zeros_like(y)).mean()
def weighted(out, y): return F.smooth_l1_loss(out*(y > -.3), y*(y > -.3))


@pytest.mark.parametrize("how", [
    {"counts": lambda y: y > 0, "target": measured}, {"counts": lambda y: y > 0}, {"counts": lambda y: y < .5},
    {"counts": None, "loss": chosen, "by_call": False}, {"counts": None, "loss": in_a_where},
    {"counts": None, "loss": weighted},
])
def test_targets_on_one_side_are_left_out(how):
    (sure, evidence), = said(**how)
    assert sure == "possible" and "those that count go from" in evidence


def depths(*shape): return torch.rand(shape)*(torch.rand(shape) > .5)


@pytest.mark.parametrize("how", [
    {"counts": lambda y: y > 0, "target": depths},  # 0 says that nothing was measured
    {"counts": lambda y: y != 0, "target": measured},
    {"counts": lambda y: y < 1.5},  # a few are beyond what can be measured
    {"counts": lambda y: torch.rand(y.shape) < .5},  # hidden places
    {"counts": lambda y: torch.ones_like(y)},
    {"counts": None, "loss": lambda out, y: F.relu(1 - out*y.sign()).mean()},
])
def test_targets_that_are_left_out_rightly(how): assert not said(**how)
