"""Gradients compared layer by layer: whose backward pass is wrong though the outputs agree."""
import copy

import pytest
import torch
from torch import nn

from hooklab.debug.comparing.comparing import compare


class Block(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(d, 2*d), nn.Tanh(), nn.Linear(2*d, d)

    def forward(self, x): return x + self.down(self.act(self.up(x)))


class WithoutItsGradient(Block):
    def forward(self, x): return x.detach() + self.down(self.act(self.up(x)))


class DetachesInside(Block):
    def forward(self, x): return x + self.down(self.act(self.up(x).detach()))


class Scales(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()

    @staticmethod
    def backward(ctx, g): return 2*g


class ScalesGradients(Block):
    def forward(self, x): return x + self.down(Scales.apply(self.act(self.up(x))))


class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.tanh()

    @staticmethod
    def backward(ctx, g): return g*(1 - ctx.saved_tensors[0]**2)  # of x, and should be of tanh(x)


class WrongTanh(nn.Tanh):
    def forward(self, x): return Tanh.apply(x)


@pytest.fixture
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), Block(), Block(), nn.Linear(8, 2))


X = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
def loss(output): return output.float().pow(2).mean()
def compared(a, b, **options): return compare(a, b, X, backward=loss, **options)
def at_fault(c): return list(dict.fromkeys((row.a, row.kind) for row in c.faults))


def other(layer, kind):
    "The same layer, of another class under the same name."
    layer.__class__ = type(type(layer).__name__, (kind,), {})


def test_the_same(net):
    c = compared(net, copy.deepcopy(net))
    assert c.same and any(row.kind == "backward equal" for row in c.rows), c
    assert all(row.what == "" for row in c.rows) and all(p.grad is None for p in net.parameters())


@pytest.mark.parametrize("kind", [WithoutItsGradient, DetachesInside, ScalesGradients])
def test_a_forward_with_other_gradients(net, kind):
    b = copy.deepcopy(net)
    other(b[1], kind)
    assert compare(net, b, X).same
    c = compared(net, b)
    assert at_fault(c) == [("1", "backward fault")], c
    assert "gradient" in c.first.what and str(c).startswith("In the backward pass they part first in 1 (Block).")


def test_scaled_gradients_are_told(net):
    b = copy.deepcopy(net)
    other(b[2], ScalesGradients)
    assert "scaled by 2" in compared(net, b).first.what


def test_a_frozen_weight(net):
    b = copy.deepcopy(net)
    b[2].up.weight.requires_grad_(False)
    c = compared(net, b)
    assert at_fault(c) == [("2.up", "backward fault")] and "weight is frozen in the candidate only" in c.first.what, c
    assert "weight is trained in the candidate only" in compared(b, net).first.what


def test_a_wrong_backward(net):
    b = copy.deepcopy(net)
    other(b[1].act, WrongTanh)
    assert compare(net, b, X).same
    assert at_fault(compared(net, b)) == [("1.act", "backward fault")]


def test_a_fault_of_the_forward_pass_is_not_judged_twice(net):
    b = copy.deepcopy(net)
    with torch.no_grad(): b[1].up.weight[0] *= 2
    c = compared(net, b)
    assert ("1.up", "fault") in at_fault(c) and ("1.up", "backward fault") not in at_fault(c), c


def test_bfloat16_is_noise(net):
    b = copy.deepcopy(net).bfloat16()
    c = compare(net, b, call=lambda m: m(X.to(m[0].weight.dtype)), backward=loss)
    assert c.same and any(row.kind == "backward noise" for row in c.rows), c


def test_rows_run_from_the_loss(net):
    rows = [row.a for row in compared(net, copy.deepcopy(net)).rows if row.kind.startswith("backward")]
    assert rows[:2] == ["", "3"] and rows[-1] == "0"
