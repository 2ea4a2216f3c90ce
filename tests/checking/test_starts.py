"""preflight looks at how parameters start, and where the first NaN arises."""
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl

pytestmark = pytest.mark.usefixtures("one_thread")


def data(n=32):
    torch.manual_seed(1)
    return torch.randn(n, 20), torch.arange(n) % 5


def block(norm): return nn.Linear(20, 20), norm, nn.ReLU()


def network(norm=nn.Identity, fill=None):
    torch.manual_seed(0)
    model = nn.Sequential(*block(norm()), *block(norm()), nn.Linear(20, 5))
    if fill:
        with torch.no_grad(): fill(model)
    return model


def found_in(model, what, loss_fn=F.cross_entropy, batch=None):
    found = hl.preflight(model, loss_fn, batch or data(), overfit=False)
    return [(f.sure, f.layers, f.evidence) for f in found if f.what == what]


@pytest.mark.parametrize(("number", "said"), [(torch.nan, "100% of its values are NaN"),
                                              (3e38, "its largest value is 3e+38"),
                                              (1e-38, "100% of its nonzero values are below 1e-30")])
def test_a_parameter_that_nothing_has_filled(number, said):
    model = network(fill=lambda model: model[6].bias.fill_(number))
    first, = hl.preflight(model, F.cross_entropy, data(), overfit=False).findings[:1]
    assert (first.what, first.sure, first.layers) == ("not initialised", "certain", ["6.bias"])
    assert first.evidence == f"Before the first step, 6.bias looks uninitialized: {said}."


def test_zeros_ones_and_constants_are_chosen():
    assert not found_in(network(fill=lambda m: (m[6].bias.zero_(), m[0].bias.fill_(1e-8))), "not initialised")
    model = network(lambda: nn.BatchNorm1d(20))
    model.register_buffer("hides", torch.full((5,), -torch.inf))
    assert not found_in(model, "not initialised")


class RMS(nn.Module):
    "A norm of one's own, whose scale is one more than its weight."
    def __init__(self, one_more):
        super().__init__()
        self.weight, self.one_more = nn.Parameter(torch.zeros(20) if one_more else torch.ones(20)), one_more

    def forward(self, x): return x*(x.square().mean(1, keepdim=True) + 1e-6).rsqrt()*(self.weight + self.one_more)


class RMSNorm(RMS): pass


def drawn(model):
    for m in model.modules():
        own = getattr(m, "weight", None)
        if own is not None: own.normal_(std=.02 if own.dim() == 1 else .2)


@pytest.mark.parametrize("norm", [lambda: nn.LayerNorm(20), lambda: RMSNorm(False)])
def test_scales_that_are_drawn_like_weights(norm):
    (sure, layers, said), = found_in(network(norm, drawn), "scale of a norm")
    assert sure == "likely" and layers == ["1", "4"] and said.startswith("The scale of 2 norms starts at small")
    assert not found_in(network(norm), "scale of a norm")


def test_a_scale_that_is_added_to_one(): assert not found_in(network(lambda: RMSNorm(1), drawn), "scale of a norm")


class Branches(nn.Module):
    "Blocks, with what they get beside what they make."
    def __init__(self, beside):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.beside = nn.Linear(20, 20), nn.Linear(20, 5), beside
        self.norm = nn.BatchNorm1d(20)
        nn.init.zeros_(self.norm.weight)

    def forward(self, x):
        made = self.norm(self.first(x)).relu() if not self.beside else self.norm(self.first(x).relu())
        return self.last(made + x if self.beside else made)


def test_scales_of_zero():
    (sure, layers, said), = found_in(Branches(False), "scale of a norm")
    assert (sure, layers) == ("likely", ["norm"])
    assert said == "All of norm.weight is zero, and so is its gradient: nothing gets through."
    assert not found_in(Branches(True), "scale of a norm")


# Where NaN arises

def of_sizes(out, y): return F.smooth_l1_loss(out, (y[:, 2:] - y[:, :2]).log())


def test_which_operation_makes_nan():
    corners = torch.rand(32, 4)
    (_, _, said), = found_in(nn.Linear(20, 2), "NaN or Inf", of_sizes, (data()[0], corners))
    assert "NaN starts in log (`def of_sizes(out, y): return F.smooth_l1_loss(" in said
    assert "check the data and how targets are encoded" in said
    (_, _, said), = found_in(nn.Linear(20, 5), "NaN or Inf", lambda out, y: out.sqrt().mean())
    assert "NaN starts in sqrt" in said and "encoded" not in said


# A parameter that is no more

class Gated(nn.Module):
    def __init__(self, moved):
        super().__init__()
        torch.manual_seed(0)
        gate = nn.Parameter(torch.ones(20, dtype=torch.float64 if moved else torch.float32))
        self.last, self.gate = nn.Linear(20, 5), gate.float()

    def forward(self, x):
        self.seen = self.last(x*self.gate.sigmoid())  # kept from call to call, with its graph
        return self.seen


def test_a_parameter_that_was_moved_when_it_was_made():
    (sure, layers, said), = found_in(Gated(True), "not registered")
    assert (sure, layers) == ("likely", ["gate"]) and "a parameter but was computed from one" in said
    assert not found_in(Gated(False), "not registered")


# Units that begin alike

def same_weights(layer):
    def fill(model):
        model[layer].weight.fill_(.1)
        model[layer].bias.zero_()
    return fill


def test_units_that_begin_with_the_same_weights():
    (sure, layers, said), = found_in(network(fill=same_weights(0)), "units alike")
    assert (sure, layers) == ("likely", ["0"]) and "such as 0.1: they get the same gradient" in said
    assert not found_in(network(), "units alike")
    assert not found_in(network(fill=same_weights(6)), "units alike")  # the loss tells the last ones apart


def squares(model, batch): return (model(batch[0]) - model(batch[0].clone())).square().sum(1)  # all 0
def roots(model, batch): return squares(model, batch).sqrt().mean() + model(batch[0]).mean()
def apart(model, batch): return (squares(model, batch) + 1e-9).sqrt().mean() + model(batch[0]).mean()


@pytest.mark.parametrize(("call", "odd"), [(roots, True), (apart, False)])
def test_a_gradient_that_is_nan_where_the_loss_is_not(call, odd):
    found = [f for f in hl.preflight(network(), None, data(), call=call, overfit=False) if f.what == "NaN or Inf"]
    assert len(found) == odd
    for f in found:
        assert f.sure == "certain" and "It starts in the backward pass of Sqrt" in f.evidence
        assert set(f.layers) <= {"0", "3", "6"}


def test_a_loss_that_becomes_nan_while_it_is_learned():
    model = network()
    def call(model, batch): return (.1 - model(batch[0]).square().mean()).sqrt()
    with torch.no_grad():
        for p in model[6].parameters(): p.mul_(.01)
    found = hl.preflight(model, None, data(), torch.optim.Adam(model.parameters(), 1e-2), call=call)
    said, = [f.evidence for f in found if f.what == "NaN or Inf"]
    assert said.startswith("The loss on 16 samples is 0.3") and "nan after" in said
