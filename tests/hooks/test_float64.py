"""Code in float64: as exact as if it were written so, on a model that has every bit of its own afterwards."""
import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from hooklab.hooks.float64 import Float64Mode, float64_stand_ins, in_float64, out_of_float64, perturb_last_bit, widen


@pytest.fixture(autouse=True)
def seed(): torch.manual_seed(0)


def owned(model):
    "Every parameter and buffer of a model: the tensor itself, and a copy of its bits."
    found = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return {name: (t, t.detach().clone()) for name, t in found}


def is_as_it_was(model, before):
    "Has the model the same tensors as before, with the same bits?"
    now = owned(model)
    return now.keys() == before.keys() and all(
        now[name][0] is t and t.dtype == bits.dtype and torch.equal(t, bits) for name, (t, bits) in before.items())


def as_double(model, x):
    "What a copy of the model computes whose parameters are in float64."
    return copy.deepcopy(model).double()(x.double())


# ---- casts

class CastsInside(nn.Module):
    "Computes in fewer bits than it is given, in every spelling that torch has for it."
    def __init__(self):
        super().__init__()
        self.linear, self.scale = nn.Linear(4, 4), nn.Parameter(torch.randn(4))

    def forward(self, x):
        x = self.linear(x.to(torch.float32)).half().type(torch.bfloat16).float()
        x = x*torch.rsqrt(x.pow(2).mean(-1, keepdim=True, dtype=torch.float32) + 1e-6)
        x = x + torch.zeros(4, dtype=torch.float16) + torch.tensor(1/3, dtype=torch.float64).float()
        return F.softmax(x*self.scale, dim=-1, dtype=torch.float32).to(x.dtype)


def test_layers_that_cast_inside():
    layer, x = CastsInside(), torch.randn(3, 4)
    before = owned(layer)
    with in_float64(layer): y = layer(x)
    exact = F.linear(x.double(), layer.linear.weight.double(), layer.linear.bias.double())
    exact = exact*torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + 1e-6) + 1/3
    assert y.dtype == torch.float64 and is_as_it_was(layer, before)
    torch.testing.assert_close(y, torch.softmax(exact*layer.scale.double(), -1), rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_model_of_fewer_bits(dtype):
    layer, x = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8)).to(dtype), torch.randn(3, 4).to(dtype)
    with in_float64(layer): y = layer(x)
    torch.testing.assert_close(y, as_double(layer, x), rtol=1e-14, atol=1e-14)


def test_integers_and_booleans_stay():
    with Float64Mode():
        kept = torch.arange(3) + 1, torch.ones(2, dtype=torch.bool), torch.ones(2, dtype=torch.int8)
    assert [t.dtype for t in kept] == [torch.int64, torch.bool, torch.int8]
    assert widen(kept[0]) is kept[0]


# ---- random numbers

@pytest.mark.parametrize("draw", [
    lambda: torch.rand(5), lambda: torch.randn(5), lambda: torch.randn(5, dtype=torch.bfloat16),
    lambda: torch.rand_like(torch.ones(5)), lambda: torch.bernoulli(torch.full((50,), .3)),
    lambda: torch.empty(5).normal_(2, 3), lambda: torch.empty(5).uniform_(-1, 1),
    lambda: torch.multinomial(torch.full((9,), .1), 3), lambda: torch.normal(torch.zeros(3), torch.ones(3)),
    lambda: F.dropout(torch.ones(50), .4), lambda: nn.init.trunc_normal_(torch.empty(20))],
    ids="rand randn bfloat16 rand_like bernoulli normal_ uniform_ multinomial normal dropout trunc_normal_".split())
def test_random_numbers_are_those_of_float32(draw):
    torch.manual_seed(3)
    plain, state = draw(), torch.get_rng_state()
    torch.manual_seed(3)
    with Float64Mode(): wide = draw()
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(wide.double(), plain.double(), rtol=1e-6, atol=1e-7)


def test_attention_without_dropout_draws_nothing_and_is_exact():
    q, k, v = torch.randn(3, 2, 4, 5, 8)
    with Float64Mode(): y = F.scaled_dot_product_attention(q, k, v)
    q, k, v = (t.double() for t in (q, k, v))
    torch.testing.assert_close(y, torch.softmax(q @ k.mT/8**.5, -1) @ v, rtol=1e-13, atol=1e-14)


def test_attention_with_dropout_drops_the_same():
    "The operation runs in float32 then."
    q, k, v = torch.randn(3, 2, 4, 5, 8)
    torch.manual_seed(1)
    plain = F.scaled_dot_product_attention(q, k, v, dropout_p=.5)
    torch.manual_seed(1)
    with Float64Mode(): wide = F.scaled_dot_product_attention(q, k, v, dropout_p=.5)
    torch.testing.assert_close(wide.float(), plain)


# ---- in place

def test_writing_into_tensors_of_fewer_bits():
    table, rows = torch.zeros(3, 2), [torch.zeros(2), torch.zeros(2)]
    with Float64Mode():
        table.copy_(torch.tensor([[0, 0], [1/3, 2/3], [0, 0]]))
        assert table.add_(1) is table
        table.clamp_(max=1.5).masked_fill_(torch.tensor([[True], [False], [False]]), 7)
        torch._foreach_add_(rows, 1/3)
    assert table.dtype == torch.float32 and [r.dtype for r in rows] == [torch.float32]*2
    assert torch.equal(table, torch.tensor([[7, 7], [1 + 1/3, 1.5], [1, 1]]))
    assert torch.equal(rows[0], torch.full((2,), 1/3))


@pytest.mark.xfail(strict=True, reason="a view of a tensor of fewer bits is a view of its float64 copy")
@pytest.mark.parametrize("write", [lambda t: t[1].copy_(torch.ones(2)), lambda t: t.__setitem__((slice(None), 0), 1),
                                   lambda t: t.data.mul_(2)], ids=["row", "column", "data"])
def test_writing_through_a_view_of_fewer_bits(write):
    plain, wide = torch.full((3, 2), 3.), torch.full((3, 2), 3.)
    write(plain)
    with Float64Mode(): write(wide)
    assert torch.equal(plain, wide)


def test_writing_through_a_view_of_what_was_made_in_float64():
    with Float64Mode():
        table = torch.zeros(3, 2)
        table[1] = torch.tensor([1/3, 2/3])
        table[:, 0].add_(1)
    exact = torch.tensor([1, 1 + 1/3, 1], dtype=torch.float64)
    torch.testing.assert_close(table[:, 0], exact, rtol=1e-7, atol=0)


def test_a_buffer_that_a_layer_changes():
    norm, x = nn.BatchNorm1d(4), torch.randn(6, 4)
    before = owned(norm)
    with in_float64(norm) as lent:
        y = norm(x)
        mean = lent[id(before["running_mean"][0])].clone()
    assert is_as_it_was(norm, before) and y.dtype == torch.float64
    torch.testing.assert_close(mean, .1*x.double().mean(0), rtol=1e-14, atol=1e-15)


def test_in_place_layers_return_what_they_were_given():
    layer = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
    with in_float64(layer):
        h = layer[0](torch.randn(2, 4))
        assert layer[1](h) is h


# ---- bits

def test_bits_that_are_read_as_other_numbers():
    x = torch.randn(5)
    with Float64Mode():
        halved = x*2
        whole = halved.view(torch.int32)  # as many numbers as before, although each had 64 bits
        back = whole.view(torch.float32)
    assert torch.equal(whole, (x*2).view(torch.int32)) and torch.equal(back.float(), x*2)


def test_no_kernel_in_float64():
    "What torch has no kernel for runs in float32."
    def narrow(x):
        if x.dtype == torch.float64: raise NotImplementedError('"narrow" not implemented for \'Double\'')
        return x + 1
    library = torch.library.Library("hooklab_test_float64", "DEF")
    library.define("narrow(Tensor x) -> Tensor")
    library.impl("narrow", narrow, "CPU")
    with Float64Mode(): y = torch.ops.hooklab_test_float64.narrow(torch.ones(2)*2)
    assert y.dtype == torch.float64 and torch.equal(y, torch.full((2,), 3., dtype=torch.float64))


def test_other_errors_are_those_of_torch():
    with Float64Mode(), pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        torch.ones(2, 3) @ torch.ones(2, 3)


def test_complex():
    x = torch.randn(8)
    with Float64Mode():
        spectrum = torch.fft.rfft(x)
        back = torch.fft.irfft(spectrum*torch.ones(5, dtype=torch.complex64))
        parts = torch.view_as_real(spectrum)
    assert spectrum.dtype == torch.complex128 and parts.dtype == back.dtype == torch.float64
    torch.testing.assert_close(back, x.double(), rtol=1e-14, atol=1e-15)


def test_gradients():
    layer, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), torch.randn(3, 4)
    exact = copy.deepcopy(layer).double()
    exact(x.double()).sum().backward()
    own = list(layer.parameters())
    with in_float64(layer) as lent:
        layer(x).sum().backward()
        found = [lent[id(p)].grad for p in own]
    for g, p in zip(found, exact.parameters()): torch.testing.assert_close(g, p.grad, rtol=1e-13, atol=1e-14)
    assert all(p.grad is None for p in own)


# ---- what a model owns

@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent(kind):
    layer, x = kind(3, 4, num_layers=2, bidirectional=True), torch.randn(5, 2, 3)
    before, lists = owned(layer), (layer._flat_weights, layer._flat_weight_refs)
    with in_float64(layer): y, _ = layer(x.double())  # torch looks at the dtype of the input before any operation
    torch.testing.assert_close(y, as_double(layer, x)[0], rtol=1e-13, atol=1e-14)
    assert is_as_it_was(layer, before)
    assert layer._flat_weights is lists[0] and layer._flat_weight_refs is lists[1]
    assert all(w is getattr(layer, name) for w, name in zip(layer._flat_weights, layer._flat_weights_names))


def test_tied_weights_share_one_stand_in():
    model = nn.ModuleDict({"embedding": nn.Embedding(9, 4), "head": nn.Linear(4, 9, bias=False)})
    model.head.weight = model.embedding.weight
    tied = model.head.weight
    with in_float64(model) as lent:
        assert model.head.weight is model.embedding.weight is lent[id(tied)] and len(lent) == 1
    assert model.head.weight is model.embedding.weight is tied


def test_whatever_was_there_is_there_again_after_an_exception():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.LSTM(4, 4), nn.Linear(4, 2, bias=False))
    before, lists = owned(model), model[2]._flat_weights
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), in_float64(model):
            model[:2](torch.randn(3, 4))
            raise error
        assert is_as_it_was(model, before) and model[2]._flat_weights is lists
    assert (torch.ones(1) + 1).dtype == torch.float32


def test_an_error_while_it_is_lent():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    before = owned(model)
    def stumbles(m):
        if m is model[1]: raise ValueError("no dtype for this one")
    with pytest.raises(ValueError, match="no dtype"), in_float64(model, bits=stumbles): raise AssertionError
    assert is_as_it_was(model, before)


# ---- rounded, and pushed

def test_rounded_to_the_bits_of_another_model():
    full = nn.Linear(4, 3)
    half = copy.deepcopy(full).bfloat16()
    with float64_stand_ins([full], bits=lambda m: torch.bfloat16), float64_stand_ins([half]):
        assert torch.equal(full.weight, half.weight) and full.weight.dtype == torch.float64
    assert full.weight.dtype == torch.float32 and half.weight.dtype == torch.bfloat16


def test_integers_are_not_rounded():
    norm = nn.BatchNorm1d(3)
    norm.num_batches_tracked.fill_(12345)
    with in_float64(norm, bits=lambda m: torch.bfloat16, push=1):
        assert norm.num_batches_tracked.item() == 12345 and norm.num_batches_tracked.dtype == torch.int64


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_push_moves_each_number_by_its_last_bit(dtype):
    layer = nn.Linear(30, 20).to(dtype)
    eps, weight = torch.finfo(dtype).eps, layer.weight.detach().double()
    with in_float64(layer, push=1): first = layer.weight.detach().clone()
    with in_float64(layer, push=1): again = layer.weight.detach().clone()
    with in_float64(layer, push=2): other = layer.weight.detach().clone()
    ratio = first/weight - 1
    torch.testing.assert_close(ratio.abs(), torch.full_like(ratio, eps), rtol=1e-6, atol=0)
    assert .4 < (ratio > 0).double().mean() < .6, "up as often as down"
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_a_push_leaves_the_random_state_alone():
    state = torch.get_rng_state()
    perturb_last_bit(torch.ones(4), 1, torch.float32)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_mode_rests_and_is_never_put_on_late():
    "Python may free what Ctrl-C has stopped long after the mode is off: nothing may be switched on then."
    model = nn.Linear(2, 2)
    def dtype(): return (torch.ones(2) + torch.ones(2)).dtype
    with in_float64(model):
        assert dtype() == torch.float64
        with out_of_float64():
            assert dtype() == torch.float32
            with out_of_float64(): assert dtype() == torch.float32
            assert dtype() == torch.float32
        assert dtype() == torch.float64
        stopped = out_of_float64()
        stopped.__enter__()  # its end never comes
    del stopped
    assert not _get_current_dispatch_mode_stack() and dtype() == torch.float32
    with in_float64(model): assert dtype() == torch.float64
