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
    assert "gradient" in c.first.what and str(c).startswith("In the backward pass they first diverge in 1 (Block).")


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


# ---- gradients in another form

class Looks(nn.Module):
    "Looks words up in a table whose gradient is sparse."
    def __init__(self, bag):
        super().__init__()
        self.words = (nn.EmbeddingBag if bag else nn.Embedding)(20, 8, sparse=True)
        self.head = nn.Linear(8, 3)

    def forward(self, ids): return self.head(self.words(ids))


@pytest.mark.parametrize("bag", [True, False])
def test_sparse_gradients(bag):
    torch.manual_seed(0)
    model, ids = Looks(bag), torch.randint(20, (4, 5))
    other = copy.deepcopy(model)
    c = compare(model, other, ids, backward=loss)
    assert c.same and {row.name for row in c.rows if row.kind == "backward equal"} == {"words", "head", "(model)"}
    doubled = copy.deepcopy(model)
    doubled.words.forward = lambda ids: Scales.apply(type(doubled.words).forward(doubled.words, ids))
    c = compare(model, doubled, ids, backward=loss)
    assert [row.name for row in c.faults] == ["words"] and "the gradient of weight: scaled by 2" in c.first.what


# ---- models that compute gradients themselves

class Forces(nn.Module):
    "An energy and its gradient, as in potentials."
    def __init__(self, scale=nn.Identity):
        super().__init__()
        self.up, self.scale, self.head = nn.Linear(4, 8), scale(), nn.Linear(8, 1)

    def forward(self, x):
        x = x.detach().requires_grad_()
        energy = self.head(self.scale(self.up(x).tanh())).sum()
        return energy, torch.autograd.grad(energy, x, create_graph=True)[0]


class Detaches(nn.Module):
    "Gradients flow through, but not those of gradients."
    def forward(self, x): return OnceOnly.apply(x)


class OnceOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()

    @staticmethod
    def backward(ctx, g): return g.detach()


def on_both(output): return output[0].square() + output[1].square().sum()


def test_gradients_of_a_model_that_computes_gradients():
    torch.manual_seed(0)
    model = Forces()
    c = compare(model, copy.deepcopy(model), X, backward=on_both)
    assert c.same and any(row.kind.startswith("backward") for row in c.rows), c
    assert "only the first layer" in "".join(c.notes) and "No backward pass in float64" not in "".join(c.notes)
    half = copy.deepcopy(model).double()
    assert compare(model, half, call=lambda m: m(X.to(next(m.parameters()).dtype)), backward=on_both).same
    other = Forces(Detaches)
    other.load_state_dict(model.state_dict())
    c = compare(model, other, X, backward=on_both)
    assert not c.same and c.first.kind == "backward fault" and sum(row.is_fault for row in c.rows) == 1


def test_a_call_that_computes_gradients(net):
    def call(m):
        x = X.clone().requires_grad_()
        slope, = torch.autograd.grad(m(x).sum(), x, create_graph=True)
        return slope.square().sum()
    assert compare(net, copy.deepcopy(net), call=call, backward=lambda output: output).same
    other = copy.deepcopy(net)
    with torch.no_grad(): other[3].weight[0, 0] += 1
    c = compare(net, other, call=call, backward=lambda output: output)
    assert [row.name for row in c.faults] == ["3"]  # in the forward pass; what follows from it is not blamed again


def test_gradients_that_a_model_computes_for_itself_are_not_those_of_the_loss():
    "What only the model's own backward pass reaches is no gradient of the loss."
    class Guided(nn.Module):
        def __init__(self, steps):
            super().__init__()
            self.up, self.head, self.steps = nn.Linear(4, 4), nn.Linear(4, 1), steps

        def forward(self, x):
            guess = x.detach().requires_grad_()
            for _ in range(self.steps): slope, = torch.autograd.grad(self.head(self.up(guess)).sum(), guess)
            return self.head(x + slope.detach())

    torch.manual_seed(0)
    model = Guided(1)
    c = compare(model, copy.deepcopy(model), X, backward=loss)
    assert c.same and not any(row.name == "up" and row.kind.startswith("backward") and row.error for row in c.rows)
