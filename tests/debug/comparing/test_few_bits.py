"""Models in few bits: tensors that store their numbers in another form, and dtypes that cannot hold every number."""
import copy
import dataclasses
import random
from functools import partial

import pytest
import torch
from torch import nn

from hooklab.debug.comparing.comparing import compare
from hooklab.debug.comparing.few_bits import equal_bits, numbers_in, stored_numbers
from hooklab.debug.comparing.recording import record
from support.nets import Makes
from support.portions import sample, sweep


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


@pytest.mark.filterwarnings("ignore:.*quantize")
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


# ---- float16 and bfloat16

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.up, self.act, self.down = nn.LayerNorm(d), nn.Linear(d, 2*d), nn.GELU(), nn.Linear(2*d, d)

    def forward(self, x): return x + self.down(self.act(self.up(self.norm(x))))


class Decoder(nn.Module):
    def __init__(self, n=4, d=16):
        super().__init__()
        self.stem, self.norm, self.head = nn.Linear(8, d), nn.LayerNorm(d), nn.Linear(d, 5)
        self.blocks = nn.Sequential(*(Block(d) for _ in range(n)))

    def forward(self, x): return self.head(self.norm(self.blocks(self.stem(x))))


def decoder(loud=None, by=3e5):
    "A model, one layer of which may return large numbers."
    model = Decoder().eval()
    if loud is not None:
        with torch.no_grad(): model.blocks[loud].down.weight.mul_(by)
    return model


HALVES = [torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_inputs_are_cast_to_the_dtype_of_the_parameters(dtype):
    model, x = decoder(), torch.randn(3, 8)
    narrow = copy.deepcopy(model).to(dtype)
    for a, b, whose in ((model, narrow, "candidate"), (narrow, model, "reference")):
        c = compare(a, b, x)
        told = str(dtype).removeprefix("torch.")
        assert c.same and f"The {whose} was given its inputs in {told}, the dtype of its parameters." in c.notes
        by_hand = compare(a, b, call=lambda m: m(x.to(next(m.parameters()).dtype)))
        assert [(row.kind, row.error) for row in c.rows] == [(row.kind, row.error) for row in by_hand.rows]
    c = compare(narrow, model, x.to(dtype))  # here the other one needs a cast
    assert c.same and "The candidate was given its inputs in float32, the dtype of its parameters." in c.notes
    wrong = copy.deepcopy(narrow)
    with torch.no_grad(): wrong.blocks[1].up.weight[0] *= -1
    assert [row.name for row in compare(model, wrong, x).faults] == ["blocks.1.up"]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_record_with_a_model_in_another_precision(dtype, tmp_path):
    model, x = decoder(), torch.randn(3, 8)
    path, narrow = record(model, tmp_path/"run.safetensors", x), copy.deepcopy(model).to(dtype)
    note = f"The model was given its inputs in {str(dtype)[6:]}, the dtype of its parameters."
    wrong = copy.deepcopy(narrow)
    with torch.no_grad(): wrong.blocks[1].up.weight[0] *= -1
    for found in (partial(compare, path), lambda m: compare(m, path)):
        c = found(narrow)
        assert c.same and note in c.notes, c
        assert [row.name for row in found(wrong).faults] == ["blocks.1.up"]
        assert not any("was given" in text for text in found(model).notes)
    back = record(narrow, tmp_path/"narrow.safetensors", x.to(dtype))
    c = compare(back, model)
    assert c.same and "The model was given its inputs in float32, the dtype of its parameters." in c.notes, c


def test_a_record_with_a_model_that_overflows(tmp_path):
    model, x = decoder(2), torch.randn(3, 8)
    c = compare(record(model, tmp_path/"run.safetensors", x), copy.deepcopy(model).half())
    assert [row.name for row in c.faults] == ["blocks.2.down"] and c.first.overflow == "candidate", c


def test_a_record_with_a_model_that_fails_in_every_dtype(tmp_path):
    path = record(decoder(), tmp_path/"run.safetensors", torch.randn(3, 8))
    with pytest.raises(RuntimeError, match="(?s)the model .Sequential. cannot be called with .*in float16, "):
        compare(path, nn.Sequential(nn.Linear(7, 4)).half())


def test_who_takes_the_inputs_as_they_are_gets_them_so():
    class Casts(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.given = nn.Linear(8, 4), []

        def forward(self, x):
            self.given.append(x.dtype)
            return self.lin(x.to(self.lin.weight.dtype))

    model = Casts()
    other, seen = copy.deepcopy(model).half(), []
    other.register_forward_pre_hook(lambda m, args: seen.append(args[0].dtype))
    c = compare(model, other, torch.randn(3, 8))
    assert c.same and set(seen) <= {torch.float32, torch.float64} and not any("was given" in note for note in c.notes)


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    ids: torch.Tensor


def test_inputs_in_containers():
    class Takes(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.words = nn.Linear(8, 4), nn.Embedding(10, 4)

        def forward(self, batch, extra, *, scale):
            assert batch.ids.dtype == torch.long and extra["mask"].dtype == torch.bool
            y = self.lin(batch.x) + self.words(batch.ids) + self.lin(extra["more"][0])*scale
            return y*extra["mask"]

    model = Takes()
    given = Batch(torch.randn(3, 8), torch.arange(3)), {"more": (torch.randn(3, 8),), "mask": torch.ones(3, 1).bool()}
    c = compare(model, copy.deepcopy(model).bfloat16(), *given, scale=torch.tensor(.5))
    assert c.same and "bfloat16" in "".join(c.notes)
    assert given[0].x.dtype == given[1]["more"][0].dtype == torch.float32


def test_what_fails_in_every_dtype_says_so():
    model = decoder()
    with pytest.raises(RuntimeError) as failed: compare(model, copy.deepcopy(model).half(), torch.randn(3, 7))
    assert "the reference (Decoder) cannot be called like this" in str(failed.value)
    class Refuses(Decoder):
        def forward(self, x): return super().forward(x) + self.missing
    other = Refuses()
    other.load_state_dict(model.state_dict())
    with pytest.raises(RuntimeError, match="(?s)candidate.*float16.*missing") as failed:
        compare(model, other.half(), torch.randn(3, 8))
    x = torch.randn(3, 8)
    with pytest.raises(RuntimeError, match="call=.*next\\(m.parameters\\(\\)\\).dtype"):
        compare(model, copy.deepcopy(model).half(), call=lambda m: m(x))


@pytest.mark.parametrize("name, loud", [("blocks.2.down", 2), ("blocks.0.down", 0)])
def test_an_overflow_comes_first(name, loud):
    model, x = decoder(loud), torch.randn(3, 8)
    outputs = []
    hook = model.get_submodule(name).register_forward_hook(lambda m, args, y: outputs.append(y))
    model(x)
    hook.remove()
    c = compare(model, copy.deepcopy(model).half(), x)
    most = outputs[0].abs().max().item()
    assert most > 65504 and [row.name for row in c.faults] == [name], c
    assert str(c).startswith(f"The candidate overflows in {name} (Linear): {most:,.0f} is above 65,504, "
                             "the largest number of float16.")
    assert c.first.overflow == "candidate" and c.rows[-1].kind == "inherited"
    c = compare(copy.deepcopy(model).half(), model, x)
    assert str(c).startswith(f"The reference overflows in {name} (Linear): ") and " is above 65,504" in str(c)
    assert compare(model, copy.deepcopy(model).bfloat16(), x).same


def test_an_overflow_between_layers():
    model, x = decoder(), torch.randn(3, 8)
    with torch.no_grad():
        model.stem.bias.fill_(6e4)
        model.blocks[0].down.bias.fill_(6e4)
    c = compare(model, copy.deepcopy(model).half(), x)
    assert [row.name for row in c.faults] == ["blocks.0"], c
    assert str(c).startswith("The candidate overflows in blocks.0 (Block): 1") and " is above 65,504" in str(c)


class Scores(nn.Module):
    "The softmax of squares, which are large on the way."
    def forward(self, x): return (x*x).softmax(-1)


def test_an_overflow_inside_a_layer():
    model = decoder()
    model.norm = Scores()
    with torch.no_grad(): model.stem.weight *= 1000
    c = compare(model, copy.deepcopy(model).half(), torch.randn(3, 8))
    assert [row.name for row in c.faults] == ["norm"], c
    inside = "its output is in range, but a value inside it is above 65,504, the largest number of float16"
    assert str(c).startswith(f"The candidate overflows in norm (Scores): {inside}.")


def test_inputs_that_overflow():
    model, x = decoder(), torch.randn(3, 8)
    c = compare(model, copy.deepcopy(model).half(), 1e5*x)
    most = (1e5*x).abs().max().item()
    assert str(c).startswith(f"The candidate overflows in (model) (Decoder): {most:,.0f} is above 65,504")
    assert len(c.faults) == 1 and c.first.what.endswith("in what it passes to stem")


def test_a_fault_before_an_overflow_is_named_first():
    model, x = decoder(2), torch.randn(3, 8)
    wrong = copy.deepcopy(model).half()
    with torch.no_grad(): wrong.blocks[0].up.weight[0] *= -1
    c = compare(model, wrong, x)
    assert [row.name for row in c.faults] == ["blocks.0.up", "blocks.2.down"] and c.faults[1].overflow == "candidate"
    assert str(c).startswith("They first diverge in blocks.0.up")


def test_a_fault_in_what_a_layer_makes_of_too_large_numbers():
    "It is named for what it computes: the infinite numbers that it was given are no overflow of its own."
    class Log(nn.Module):
        def forward(self, x): return x.clamp(min=1).log()

    class Twice(nn.Module):
        def forward(self, x): return 2*x.clamp(min=1).log()

    class Square(nn.Module):
        def forward(self, x): return x.square()

    model = nn.Sequential(nn.Linear(8, 8), Square(), Log(), nn.Linear(8, 2))
    with torch.no_grad(): model[0].weight *= 1e4
    other = copy.deepcopy(model).half()
    other[2] = Twice()
    c = compare(model, other, torch.randn(3, 8))
    assert [(row.name, row.overflow) for row in c.faults] == [("1", "candidate"), ("2", "")], c
    assert c.faults[1].what.startswith("it is a Twice instead of a Log")


def test_masks_are_no_overflow():
    class Masks(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", torch.full((6, 6), -1e9).triu(1))

        def forward(self, x): return x + self.mask

    class Attends(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.mask = nn.Linear(8, 6), Masks()

        def forward(self, x): return self.mask(self.lin(x)).softmax(-1)

    model = Attends()
    assert "overflow" not in str(compare(model, copy.deepcopy(model).half(), torch.randn(6, 8)))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_pair_that_only_rounds_says_by_how_much(dtype):
    model, x = decoder(), torch.randn(3, 8)
    c = compare(model, copy.deepcopy(model).to(dtype), x)
    worst = max((row for row in c.rows if row.name), key=lambda row: row.error)
    note = next(note for note in c.notes if note.startswith("Rounding is largest"))
    assert c.same and f" in {worst.name} (" in note and f"times the last bit of {str(dtype)[6:]}" in note
    assert not any(note.startswith("Rounding") for note in compare(model, copy.deepcopy(model), x).notes)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_autocast(dtype):
    class Around(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, x): return self.model(x)

    class Auto(Around):
        def forward(self, x):
            with torch.autocast("cpu", dtype): return self.model(x)

    x = torch.randn(3, 8)
    for loud, found in ((None, []), (2, ["blocks.2.down"] if dtype == torch.float16 else [])):
        model = decoder(loud)
        c = compare(model, copy.deepcopy(model), call=lambda m: m(x))
        assert c.same
        plain = Around(model).eval()
        c = compare(plain, Auto(copy.deepcopy(model)).eval(), x)
        assert [row.name for row in c.faults] == [f"model.{name}" for name in found], c
        assert not any("was given" in note for note in c.notes)


# ---- gradients

def test_gradients_in_float16():
    model, x = decoder(), torch.randn(3, 8)
    half = copy.deepcopy(model).half()
    def scaled(by): return lambda output: (by*output).square().mean()
    c = compare(model, half, x, backward=scaled(1.))
    assert c.same and not any("underflow" in note for note in c.notes), c
    c = compare(model, half, x, backward=lambda output: output.square().mean()*1e-6)
    note = next(note for note in c.notes if "underflow" in note)
    assert "float16" in note and "% of" in note and note.endswith("Scale the loss.")
    assert not any("underflow" in note for note in compare(model, copy.deepcopy(model).bfloat16(), x,
                                                           backward=lambda output: output.square().mean()*1e-6).notes)
    c = compare(model, half, x, backward=lambda output: output.float().square().mean()*3e6)
    assert not c.same and c.first.kind == "backward fault" and c.first.overflow == "candidate"
    assert str(c).startswith("In the backward pass the candidate overflows in ") and "is above 65,504" in c.first.what
    assert {row.kind for row in c.rows[c.rows.index(c.first) + 1:]} == {"backward inherited"}


# ---- how often the layer is right

class Conv(nn.Module):
    def __init__(self, n, d, act):
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, d, 3, padding=1), nn.Linear(d, 5)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(d, d, 3, padding=1), nn.BatchNorm2d(d), act(), nn.Conv2d(d, d, 3, padding=1))
            for _ in range(n))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks: x = x + block(x)
        return self.head(x.mean((2, 3)))


def dense(n, d, act):
    layers = (m for _ in range(n) for m in (act(), nn.Linear(d, d)))
    return nn.Sequential(nn.Linear(8, d), *layers, act(), nn.Linear(d, 3))


def transformer(n, d, act):
    layer = nn.TransformerEncoderLayer(d, 2, 2*d, dropout=0., activation=act(), batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, n, enable_nested_tensor=False)
    return nn.Sequential(nn.Linear(8, d), encoder, nn.Linear(d, 3))


NETS = {dense: (5, 8), Conv: (2, 3, 6, 6), transformer: (2, 5, 8)}


def first_infinite(model, half, x):
    "The first layer to return an infinite number, or none, where that of the float32 model is finite."
    found, order = {}, []
    def look(m, name, side):
        def hook(m, args, y):
            found[side, name] = bool(y.isfinite().all())
            if side == "half": order.append(name)
        return m.register_forward_hook(hook)
    sides = {"whole": model, "half": half}
    hooks = [look(m, name, side) for side, whole in sides.items() for name, m in whole.named_modules()
             if not isinstance(m, nn.MultiheadAttention)]
    with torch.no_grad():
        model(x)
        half(x.half())
    for hook in hooks: hook.remove()
    return next((name for name in order if found["whole", name] and not found["half", name]), None)


@sweep
@pytest.mark.parametrize("seed", sample(6, range(60)))
def test_the_layer_is_the_one_that_plain_hooks_see_first(seed):
    "The page Can I run it in float16? says how many of these overflow."
    torch.manual_seed(seed)
    chance = random.Random(seed)
    make, act = chance.choice([*NETS]), chance.choice([nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh])
    model, x = make(chance.choice([1, 2, 4]), chance.choice([8, 16]), act).eval(), torch.randn(NETS[make])
    loud = chance.choice([m for name, m in model.named_modules() if type(m) in (nn.Linear, nn.Conv2d)])
    with torch.no_grad(): loud.weight.mul_(10**chance.uniform(3, 7))
    half = copy.deepcopy(model).half()
    name = first_infinite(model, half, x)
    c = compare(model, half, x)
    assert (c.first and c.first.name) == name and c.same == (name is None), c
    assert name is None or c.first.overflow == "candidate"
