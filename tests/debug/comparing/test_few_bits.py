"""Models in few bits: tensors that store their numbers in another form, and dtypes that cannot hold every number."""
import copy

import pytest
import torch
from torch import nn

from hooklab.debug.comparing.comparing import compare
from hooklab.debug.comparing.passes import equal_bits, numbers_in, stored_numbers
from support.nets import Makes


@pytest.fixture(autouse=True)
def seed(): torch.manual_seed(0)


def net(): return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).eval()


# ---- weights in a form of their own

class Int8(torch.Tensor):
    "Weights in eight bits with a few operations, as in libraries for quantization, and `equal` is not among them."
    @staticmethod
    def __new__(cls, whole, scale, readable=True):
        return torch.Tensor._make_wrapper_subclass(cls, whole.shape, dtype=torch.float32, device=whole.device)

    def __init__(self, whole, scale, readable=True): self.whole, self.scale, self.readable = whole, scale, readable
    def __repr__(self): return "Int8(…)"

    def numbers(self): return self.whole*self.scale

    def dequantize(self):
        if not self.readable: raise NotImplementedError("dequantize")
        return self.numbers()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func in (torch.ops.aten.detach.default, torch.ops.aten.alias.default, torch.ops.aten.clone.default):
            return cls(args[0].whole, args[0].scale, args[0].readable)
        if func is torch.ops.aten.t.default: return cls(args[0].whole.T, args[0].scale, args[0].readable)
        if func not in (torch.ops.aten.addmm.default, torch.ops.aten.mm.default):
            raise NotImplementedError(f"Int8 has no {func}")
        return func(*(t.numbers() if isinstance(t, cls) else t for t in args), **(kwargs or {}))


def in_int8(model, readable=True):
    "A copy whose linear layers have weights in eight bits."
    other = copy.deepcopy(model)
    for m in other.modules():
        if not isinstance(m, nn.Linear): continue
        w = m.weight.detach()
        scale = w.abs().max()/127
        m.weight = nn.Parameter(Int8((w/scale).round().to(torch.int8), scale, readable), requires_grad=False)
    return other


def test_weights_of_a_class_that_cannot_compare_them():
    model, x = net(), torch.randn(3, 16)
    other = in_int8(model)
    with pytest.raises(NotImplementedError): torch.equal(other[0].weight, model[0].weight)
    c = compare(model, other, x)
    assert [row.name for row in c.faults] == ["0", "2"] and 1e-4 < c.first.own < .1
    assert c.first.what.startswith("weight is stored as Int8 and differs by up to 0.00")
    assert compare(in_int8(model), in_int8(model), x).same


def test_weights_that_cannot_be_read():
    model, x = net(), torch.randn(3, 16)
    c = compare(model, in_int8(model, readable=False), x)
    assert [row.name for row in c.faults] == ["0", "2"] and c.first.what.startswith("weight is stored as Int8")
    assert "differs by" not in c.first.what and "Int8 and" not in c.first.what


@pytest.mark.parametrize("readable", [True, False])
def test_a_structure_of_another_kind_with_such_weights(readable):
    class Other(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(16, 32), nn.Linear(32, 4)

        def forward(self, x): return self.b(torch.relu(self.a(x)))

    model, other = net(), Other().eval()
    for new, old in (("a", "0"), ("b", "2")):
        other.get_submodule(new).load_state_dict(model.get_submodule(old).state_dict())
    for one, two in ((model, in_int8(other, readable)), (in_int8(model, readable), other)):
        c = compare(one, two, torch.randn(3, 16))
        assert {(row.a, row.b) for row in c.faults} == {("0", "a"), ("2", "b")}


def test_the_numbers_of_weights_in_another_form():
    w = torch.tensor([[1., -2.], [.5, 0.]])
    assert stored_numbers(nn.Parameter(w)).equal(w)
    assert stored_numbers(Int8(torch.tensor([[2, -4]], dtype=torch.int8), torch.tensor(.5))).tolist() == [[1., -2.]]
    assert stored_numbers(Int8(w.to(torch.int8), torch.tensor(1.), readable=False)) is None
    assert stored_numbers(w.to_sparse()).equal(w) and stored_numbers(w.to("meta")) is None
    assert stored_numbers(torch.quantize_per_tensor(w, .5, 0, torch.qint8)).equal(w)


# ---- outputs in eight and in four bits

FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]


class Narrow(nn.Module):
    "A layer that returns its numbers in a dtype of few bits."
    def __init__(self, make):
        super().__init__()
        self.lin, self.make = nn.Linear(16, 16), make

    def forward(self, x): return self.make(self.lin(x))


class Wide(nn.Module):
    "A layer that computes with such numbers."
    def __init__(self, read):
        super().__init__()
        self.lin, self.read = nn.Linear(16, 4), read

    def forward(self, x): return self.lin(self.read(x))


def pair_in(make, read, broken=""):
    model = nn.Sequential(Narrow(make), Wide(read)).eval()
    other = copy.deepcopy(model)
    if broken:
        with torch.no_grad(): other.get_submodule(broken).weight[0, 0] += 3
    return model, other


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_outputs_in_float8(dtype):
    def make(x): return x.to(dtype)
    x = torch.randn(3, 16)
    assert compare(*pair_in(make, torch.Tensor.float), x).same
    for broken in ("0.lin", "1.lin"):
        c = compare(*pair_in(make, torch.Tensor.float, broken), x)
        assert [row.name for row in c.faults] == [broken], c
    root, other = pair_in(make, torch.Tensor.float, "0.lin")
    assert [row.name for row in compare(root[0], other[0], x).faults] == ["lin"]  # the model itself returns float8


def test_only_the_candidate_rounds_to_float8():
    model, _ = pair_in(lambda x: x, lambda x: x.float())
    other = copy.deepcopy(model)
    other[0].make = lambda x: x.to(torch.float8_e4m3fn)
    c = compare(model, other, torch.randn(3, 16))
    assert c.same and c["0"].kind != "equal" and .01 < c["0"].error < .1, c
    other[0].make = lambda x: (2*x).to(torch.float8_e4m3fn)
    c = compare(model, other, torch.randn(3, 16))
    assert [row.name for row in c.faults] == ["0"] and "float8_e4m3fn instead of float32" in c.first.what


FLOAT4 = getattr(torch, "float4_e2m1fn_x2", None)
has_float4 = pytest.mark.skipif(FLOAT4 is None, reason="this torch has no float4")


@has_float4
def test_outputs_in_float4():
    def make(x): return ((x.clamp(-1, 1) + 1)*127).to(torch.uint8).view(FLOAT4)
    def read(x): return x.view(torch.uint8).float()/127 - 1
    x = torch.randn(3, 16)
    assert compare(*pair_in(make, read), x).same
    c = compare(*pair_in(make, read, "0.lin"), x)
    assert c.first.name == "0.lin"
    root, other = pair_in(make, read, "0.lin")
    assert compare(root[0], other[0], x).first.name == "lin"


@has_float4
def test_the_numbers_of_float4():
    codes = torch.arange(16, dtype=torch.uint8)
    two = (codes[0::2] | codes[1::2] << 4).view(FLOAT4)
    numbers = [0., .5, 1., 1.5, 2., 3., 4., 6.]
    assert numbers_in(two).tolist() == [*numbers, *(-x for x in numbers)]
    assert numbers_in(two.reshape(2, 4)).shape == (2, 8) and numbers_in(two[0].reshape(())).tolist() == [0., .5]


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_numbers_in_float8_are_equal_or_not(dtype):
    a, b = torch.tensor([1., -2., float("nan")]).to(dtype), torch.tensor([1., 2., float("nan")]).to(dtype)
    assert equal_bits(a, a.clone()) and not equal_bits(a, b) and not equal_bits(a, a.float())


@pytest.mark.parametrize("name", ["uint4", "int4", "bits8"])
def test_a_dtype_that_torch_cannot_compute_with_is_left_out(name):
    dtype = getattr(torch, name, None)
    if dtype is None: pytest.skip(f"this torch has no {name}")
    def make(f): return Makes(lambda y: (f(y), (y*10).to(torch.uint8).view(dtype)))
    a, b = make(lambda y: y), make(lambda y: 2*y)
    b.load_state_dict(a.state_dict())
    assert not compare(a, b, torch.randn(3, 4)).same and compare(a, a, torch.randn(3, 4)).same
