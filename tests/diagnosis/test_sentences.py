"""Sentences of `diagnose` that were false of a run, each on such a run."""
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl

pytestmark = pytest.mark.usefixtures("one_thread")


def net(*end):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1), *end)


def points(n=32):
    x = torch.randn(n, 2)
    return x, (x.prod(1, keepdim=True) > 0).float()


def said(model, loss_of, optimizer=None, steps=40, after=None):
    "What is said of a run with `loss_of(step, output, target)`; without an optimizer, `after(model)` is called."
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as s:
        for i in range(steps):
            x, y = points()
            if optimizer: optimizer.zero_grad()
            loss = loss_of(i, model(x), y)
            loss.backward()
            optimizer.step() if optimizer else after(model)
            s.step(loss)
    return hl.diagnose(s)


def sgd(model, lr=.1): return torch.optim.SGD(model.parameters(), lr)


# NaN

def root_of_zero(step):
    return lambda i, o, y: F.mse_loss(o, y) + ((o - o.detach()).square().sum().sqrt() if i == step else 0)


def log_of_zero(step): return lambda i, o, y: F.mse_loss(o, y) + (0*(0*o).log().sum() if i == step else 0)


@pytest.mark.parametrize("loss_of, loss", [(root_of_zero, "so the fault is in the backward pass"),
                                           (log_of_zero, "is nan")])
def test_a_nan_that_the_loss_gives_was_made_by_no_layer(loss_of, loss):
    found = said(model := net(), loss_of(3), sgd(model))
    one, = found
    assert (one.what, one.sure, one.layers, one.steps[0]) == ("NaN or Inf", "certain", [], 3)
    assert "They don't come from a layer" in one.evidence and loss in one.evidence


def test_a_nan_in_a_step_that_was_not_measured_is_not_put_on_a_layer():
    found = said(model := net(), root_of_zero(13), sgd(model))
    one, = found
    assert (one.layers, one.steps[0]) == ([], 13) and "the origin isn't known" in one.evidence


def test_a_nan_that_a_layer_makes_on_the_way_back_is_put_there():
    class Root(nn.Module):
        def forward(self, x): return x + (x - x.detach()).square().sum().sqrt()
    model = net()
    model.insert(1, Root())
    one, = said(model, lambda i, o, y: F.mse_loss(o, y), sgd(model))
    assert one.layers == ["0"], f"{one}"
    assert "The last of these layers is 0: its gradient comes from what follows" in one.evidence


# What else was wrong

def by_hand(model):
    with torch.no_grad():
        for p in model.parameters(): p -= 1e-4*p.grad


def by_hand_of_old(model):
    for p in model.parameters(): p.data -= 1e-4*p.grad.data


def cleared(model):
    by_hand(model)
    for p in model.parameters(): p.grad.zero_()


def bce(i, o, y): return F.binary_cross_entropy_with_logits(o, y)


@pytest.mark.parametrize("update", [by_hand, by_hand_of_old])
def test_an_update_by_hand_that_clears_no_gradients(update):
    found = said(net(), bce, steps=60, after=update)
    assert (found.first.what, found.first.sure) == ("no zero_grad", "likely")
    assert "model.zero_grad()" in found.first.advice
    assert all(f.follows for f in found if f.what == "learning rate too small"), f"{found}"


@pytest.mark.parametrize("every", [1, 3])
def test_an_update_by_hand_that_clears_them(every):
    count = iter(range(1, 1000))
    def update(model):
        if next(count) % every == 0: cleared(model)
    assert "no zero_grad" not in said(net(), bce, steps=60, after=update)


def test_an_optimizer_of_frozen_parameters():
    model = net()
    model[0].requires_grad_(False)
    found = said(model, bce, torch.optim.SGD(model[0].parameters(), .1), steps=60)
    assert found.first.what == "not in the optimizer" and "step before backward" not in found


def test_a_softmax_over_one_unit():
    found = said(model := net(nn.Softmax(1)), lambda i, o, y: F.mse_loss(o, y), sgd(model))
    assert found.first.what == "constant output" and "softmax over a single number is always 1" in found.first.advice


def test_targets_beyond_an_activation_are_told_with_numbers():
    y = torch.linspace(-2, 2, 32)[:, None]
    found = said(model := net(nn.Sigmoid()), lambda i, o, _: F.mse_loss(o, y), sgd(model), steps=60)
    assert found.first.what == "activation before the loss" and "Targets range from -2 to 2," in found.first.evidence
    low, high = map(float, found.first.evidence.removesuffix(".").split("outputs from ")[1].split(" to "))
    assert 0 <= low < high <= 1
