"summary: every number in it is true, whatever the model is, and the model is afterwards what it was."
import dataclasses
import functools
import gc
import json
import weakref
from collections import namedtuple
from pathlib import Path

import pytest
import torch
import torchvision
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torchvision.models import resnet18

import hooklab as hl
from hooklab.hooks.select import named_layers, outermost
from support.architectures import ARCHITECTURES, text_model
from support.traces import untouched

GOLDEN = Path(__file__).parent/"golden"


def check_true(model, *args, **kwargs):
    "A summary of a pass, compared with what plain hooks see in another one; the model is untouched."
    told = untouched(model, lambda m: hl.summary(m, *args, depth=None, **kwargs))
    assert told.params == sum(row.own for row in told.rows) == sum(p.numel() for p in model.parameters())
    assert told.trainable == sum(p.numel() for p in model.parameters() if p.requires_grad)
    seen, handles = {}, []
    first = {}
    for name, m in named_layers(model): first.setdefault(m, name)
    modes = [(m, m.training) for m in model.modules()]
    for m, name in first.items():
        def look(m, args, kwargs, out, name=name): seen.setdefault(name, []).append([tuple(t.shape) for t in hl.tensors(out)])
        handles.append(m.register_forward_hook(look, with_kwargs=True))
    with torch.no_grad(), torch.random.fork_rng(): model.eval()(*args, **kwargs)
    for handle in handles: handle.remove()
    for m, mode in modes: m.training = mode
    for row in told.rows[1:]:
        if row.note.startswith("same as"): continue
        shapes = [list(row.output.values()) if isinstance(row.output, dict) else [row.output]] if row.output is not None else []
        assert (row.calls or 0) == len(seen.get(row.name, ())), row
        assert shapes == seen.get(row.name, [])[:1], row
        assert row.params == sum(p.numel() for p in model.get_submodule(row.name).parameters()), row
    return told


# --- models that others get wrong

class Shared(nn.Module):
    "One layer, three times."
    def __init__(self):
        super().__init__()
        self.linear, self.act = nn.Linear(4, 4), nn.ReLU(inplace=True)
    def forward(self, x):
        for _ in range(3): x = self.act(self.linear(x))
        return x


class TwoIn(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(6, 4)
    def forward(self, x, y): return self.a(x), {"both": (self.a(x) + self.b(y), y)}


class DictOut(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 2)
    def forward(self, x): return {"logits": self.inner(x), "hidden": x}


class Keywords(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 2)
    def forward(self, *, pixels, scale=1): return self.linear(pixels)*scale


@dataclasses.dataclass
class Point:
    x: torch.Tensor
    y: torch.Tensor
    name: str = "p"


Pair = namedtuple("Pair", "left right")


class Returns(nn.Module):
    "An inner layer that returns something unusual."
    def __init__(self, f):
        super().__init__()
        self.linear, self.odd = nn.Linear(4, 4), Function(f)
    def forward(self, x):
        self.odd(self.linear(x))
        return x


class Function(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f
    def forward(self, x): return self.f(x)


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.unused = nn.Linear(5, 6), nn.Sequential(nn.Linear(100, 100), nn.ReLU())
    def forward(self, x): return self.linear(x)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(20, 8), nn.Linear(8, 20, bias=False)
        self.head.weight = self.words.weight
    def forward(self, x): return self.head(self.words(x))


class Bare(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.linear = nn.Parameter(torch.ones(8)), nn.Linear(8, 8)
    def forward(self, x): return self.linear(x)*self.scale


class Recomputed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    def forward(self, x): return checkpoint(self.body, x, use_reentrant=False)


def part_frozen():
    m = nn.Linear(8, 8)
    m.weight.requires_grad_(False)
    return m


x = torch.randn(2, 4)
awkward = {
    "shared": (Shared, [x]), "two inputs": (TwoIn, [x, torch.randn(2, 6)]), "dict": (DictOut, [x]), "unused": (Unused, [torch.randn(2, 5)]),
    "tied": (Tied, [torch.arange(6)[None]]), "bare": (Bare, [torch.randn(2, 8)]), "part frozen": (part_frozen, [torch.randn(2, 8)]),
    "dataclass": (lambda: Returns(lambda x: Point(x, x[0])), [x]), "none": (lambda: Returns(lambda x: None), [x]),
    "namedtuple": (lambda: Returns(lambda x: Pair(x, [x, x])), [x]), "text": (lambda: Returns(lambda x: "words"), [x]), "scalar": (lambda: Returns(torch.sum), [x]),
    "nothing": (lambda: Returns(lambda x: x[:0]), [x]), "complex": (lambda: Returns(torch.fft.fft), [x]),
    "sparse": (lambda: Returns(torch.Tensor.to_sparse), [x]), "parameter": (lambda: Returns(lambda x: nn.Parameter(x)), [x]),
    "lstm": (lambda: nn.LSTM(20, 10, 1), [torch.randn(5, 2, 20)]), "recomputed": (Recomputed, [x]),
    "weight norm": (lambda: nn.Sequential(weight_norm(nn.Linear(4, 3)), nn.ReLU()), [x]),
    "in place": (lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Dropout(inplace=True)), [x]),
    "batch norm": (lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), [x]),
    "leaf": (lambda: nn.Linear(4, 3), [x]), "no parameters": (nn.ReLU, [x]),
}


@pytest.mark.parametrize("kind", awkward)
def test_awkward(kind):
    make, inputs = awkward[kind]
    told = check_true(make(), *inputs)
    assert str(told) and told._repr_html_() and json.loads(told.json())["parameters"] == told.params
    on_meta = hl.summary(make(), *inputs, device="meta", depth=None) if kind not in ("sparse",) else told
    assert [(row.name, row.own, row.output, row.multiply_adds, row.calls, row.memory) for row in on_meta.rows] == [(row.name, row.own, row.output, row.multiply_adds, row.calls, row.memory) for row in told.rows]


def test_what_peers_count_wrong():
    assert hl.summary(Tied(), torch.arange(6)[None]).params == 160
    assert hl.summary(Bare(), torch.randn(1, 8)).params == 80
    assert hl.summary(Unused(), torch.randn(1, 5)).params == 10_136
    assert hl.summary(part_frozen(), torch.randn(1, 8)).trainable == 8
    lstm = hl.summary(nn.Sequential(nn.LSTM(8, 16)), torch.randn(5, 1, 8))
    assert lstm.params == 4*16*(8 + 16 + 2)
    assert hl.summary(nn.Linear(8, 8), torch.randn(2, 50, 8)).multiply_adds == 6_400
    vit = hl.summary(torchvision.models.vit_b_16, input_size=(1, 3, 224, 224), device="meta")
    assert vit.params == 86_567_656 and vit.multiply_adds == 17_563_828_224


def test_notes():
    told = hl.summary(Shared(), x)
    assert told["linear"].calls == 3 and told["linear"].note == "3 calls" and told["linear"].multiply_adds == 3*2*16
    told = hl.summary(Unused(), torch.randn(2, 5))
    assert told["unused"].note == told["unused.0"].note == "not called" and told.totals()[-1] == "not called: unused"
    assert hl.summary(part_frozen(), torch.randn(1, 8)).rows[0].note == "partly frozen"
    assert hl.summary(nn.Linear(4, 4).requires_grad_(False), x).rows[0].note == "frozen"
    lazy = hl.summary(nn.Sequential(nn.LazyLinear(3), nn.ReLU()), x)
    assert lazy["0"].note == "lazy" and lazy["0"].params == lazy.params == 15 and lazy["0"].type == "LazyLinear"


def test_shapes_that_differ_from_call_to_call():
    class Halves(nn.Module):
        def __init__(self):
            super().__init__()
            self.pool = nn.MaxPool1d(2)
        def forward(self, x): return self.pool(self.pool(x))
    told = hl.summary(Halves(), torch.randn(1, 2, 8))
    assert told["pool"].input == (1, 2, 8) and told["pool"].output == (1, 2, 4) and told["pool"].note == "2 calls, shapes differ"


def test_a_layer_in_two_places():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Sequential(nn.Linear(4, 4))
            self.b, self.last = nn.ModuleList([self.a, nn.ReLU()]), nn.Linear(4, 1)
        def forward(self, x): return self.last(self.b[1](self.b[0](self.a(x))))
    told = hl.summary(Twice(), x)
    assert [row.name for row in told.rows] == ["", "a", "a.0", "b", "b.0", "b.1", "last"]
    assert told["b.0"].note == "same as a" and told["a"].calls == 2 and told["b"].params == 20 and told["b"].own == 0 and told.params == 25


def test_memory_is_of_new_tensors():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.ReLU(inplace=True), nn.Unflatten(1, (2, 4)), nn.Identity(), nn.Flatten())
    told = hl.summary(model, x)
    assert [row.memory for row in told.rows] == [128, 64, 64, 0, 0, 0, 0]
    class Grows(nn.Module):  # memory that is no longer held is used again, and counts again
        def __init__(self):
            super().__init__()
            self.act = nn.ReLU()
        def forward(self, x):
            for _ in range(20): self.act(x)
            return x
    told = hl.summary(Grows(), x)
    assert told["act"].memory == told.memory == 20*32
    assert hl.summary(Function(lambda x: x.expand(50, 2, 4)), x).memory == 0


def test_time_is_of_each_call():
    import time
    model = nn.Sequential(Function(lambda x: time.sleep(0.03) or x), nn.ReLU())
    told = hl.summary(model, x, columns="time")
    assert told["0"].time >= 0.03 and told[""].time >= told["0"].time and told["1"].time < 0.03 and told["0"].calls == 1
    assert "ms" in str(told) and hl.summary(model, x)["0"].time is None


# --- inputs

def test_sizes():
    assert hl.summary(nn.Linear(4, 2), input_size=(3, 4))[""].input == (3, 4)
    assert hl.summary(TwoIn(), input_size=[(2, 4), (2, 6)])[""].output == {"0": (2, 4), "1.both.0": (2, 4), "1.both.1": (2, 6)}
    assert hl.summary(TwoIn(), input_size={"x": (2, 4), "y": (2, 6)})[""].input == {"x": (2, 4), "y": (2, 6)}
    assert hl.summary(Keywords(), input_size={"pixels": (2, 4)}, scale=3)[""].input == {"pixels": (2, 4)}
    assert hl.summary(Tied(), input_size=(1, 6))["head"].output == (1, 6, 20)  # numbers of words
    kinds = []
    hl.summary(Function(lambda x: kinds.append(x.dtype)), input_size=(1, 2), dtypes=torch.bool)
    hl.summary(Function(lambda x: kinds.append(x[0].dtype) or kinds.append(x[1].dtype)), [torch.zeros(1).half(), torch.zeros(1).int()])
    hl.summary(TwoIn(), input_size=[(2, 4), (2, 6)], dtypes=[torch.float32, torch.float32])
    hl.summary(nn.Linear(4, 2).double(), input_size=(1, 4))
    assert kinds == [torch.bool, torch.float16, torch.int32]


def test_nested_sizes():
    model = Function(lambda pair, extra: pair[0] + pair[1] + extra["z"])
    model.forward = lambda pair, extra: pair[0] + pair[1] + extra["z"]
    told = hl.summary(model, input_size=[[(2, 3), (2, 3)], {"z": (3,)}])
    assert told[""].input == {"0.0": (2, 3), "0.1": (2, 3), "1.z": (3,)} and told[""].output == (2, 3)


def test_wrong_sizes():
    with pytest.raises(TypeError, match="not both"): hl.summary(nn.Linear(4, 2), x, input_size=(3, 4))
    with pytest.raises(ValueError, match="2 sizes and 1 dtypes"): hl.summary(TwoIn(), input_size=[(2, 4), (2, 6)], dtypes=[torch.float32])
    with pytest.raises(ValueError, match=r"one size, \(1, 9\), and 2 dtypes: give one"): hl.summary(Tied(), input_size=(1, 9), dtypes=[torch.long]*2)
    with pytest.raises(TypeError, match="such as torch.long, not 'long'"): hl.summary(Tied(), input_size=(1, 9), dtypes="long")
    with pytest.raises(ValueError, match="there is no column 'flops'; there are name, type"): hl.summary(nn.Linear(4, 2), x, columns=["flops"])
    with pytest.raises(TypeError, match="expected a torch.nn.Module"): hl.summary(3)
    with pytest.raises(LookupError, match="no layer 'head' in this summary"): hl.summary(nn.Linear(4, 2), x)["head"]


@pytest.mark.parametrize("model, given, meant", [
    (nn.Sequential(nn.Conv2d(3, 4, 3)), [(3, 64, 64)], "input_size=(1, 3, 64, 64))"), (nn.Sequential(nn.Conv2d(3, 4, 3)), [(1, 3, 64, 64)], "input_size=(1, 3, 64, 64))"),
    (nn.Conv2d(3, 4, 3), [3, 64, 64], "input_size=(1, 3, 64, 64))"), (nn.Linear(4, 2), [[4]], "input_size=(1, 4))"), (nn.Linear(4, 2), [4], "input_size=(1, 4))"),
    (nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), [(5, 12)], "input_size=(5, 12))"), (TwoIn(), [(2, 4), (2, 6)], "input_size=[(2, 4), (2, 6)])"),
    (TwoIn(), [[(2, 4), (2, 6)]], "input_size=[(2, 4), (2, 6)])"), (nn.Sequential(nn.ReLU()), [(3, 8)], "input_size=(1, 3, 8))"),
    (Tied(), [(1, 9)], "input_size=(1, 9))")])
def test_sizes_in_the_place_of_inputs(model, given, meant):
    with pytest.raises(TypeError) as raised: hl.summary(model, *given)
    assert f"a {type(model).__name__} was called with" in str(raised.value) and meant in str(raised.value)


def test_numbers_that_a_model_takes_are_no_sizes():
    told = hl.summary(Function(lambda size: torch.zeros(size)), (3, 4))
    assert told[""].output == (3, 4)
    with pytest.raises(RuntimeError, match="its own"): hl.summary(Breaks(RuntimeError("its own")), x)


def test_one_dtype_in_a_list_for_one_size():
    "As torchinfo takes it."
    kinds = []
    hl.summary(Function(lambda x: kinds.append(x.dtype)), input_size=(1, 9), dtypes=[torch.long])
    hl.summary(Function(lambda x: kinds.append(x.dtype)), input_size=[(1, 9)], dtypes=(torch.int32,))
    assert kinds == [torch.long, torch.int32] and hl.summary(Tied(), input_size=(1, 9), dtypes=[torch.long])["head"].output == (1, 9, 20)


def test_what_cannot_be_given():
    with pytest.raises(TypeError, match=r"a size is a tuple such as \(1, 3, 224, 224\), not 4"): hl.summary(nn.Linear(4, 2), input_size=4)
    with pytest.raises(ValueError, match="the loader gave no batch"): hl.summary(nn.Linear(4, 2), DataLoader([]))


def test_nested_tensors_are_not_counted_and_it_says_so():
    nested = torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(3, 4)])
    told = hl.summary(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), nested)
    assert told["0"].output == (2,) and "not counted, because of nested tensors: aten::" in told.totals()[-1] and told["1"].calls == 1


def test_meta_inputs_for_a_real_model():
    told = hl.summary(nn.Linear(4, 2), x.to("meta"))
    assert told.title.endswith("on meta") and told.multiply_adds == 16


def test_without_an_input():
    assert hl.summary(nn.ModuleList([nn.Linear(4, 2)])).params == 10
    told = hl.summary(Tied())
    assert told.title == "Tied, without an input" and told.params == 160 and told.multiply_adds is None and "not called" not in str(told)
    class Needs(nn.Module):
        def __init__(self, n=None):
            super().__init__()
            self.linear = nn.Linear(2, 2)
        def forward(self): return self.linear(torch.ones(1, 2))
    assert hl.summary(Needs())["linear"].calls == 1


@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_of_a_loader(shuffle):
    own = torch.Generator().manual_seed(3)
    loader = DataLoader(TensorDataset(torch.randn(9, 4), torch.arange(9)), 3, shuffle=shuffle, generator=own)
    model = nn.Linear(4, 2)
    state, rng = own.get_state(), torch.get_rng_state()
    assert hl.summary(model, loader)[""].input == (3, 4)
    assert torch.equal(state, own.get_state()) and torch.equal(rng, torch.get_rng_state())
    batch = next(iter(loader))
    assert hl.summary(nn.Linear(4, 2), batch)[""].input == (3, 4)
    assert hl.summary(nn.Linear(4, 2), tuple(batch))[""].input == (3, 4)


def test_batches_of_dicts_and_of_several_inputs():
    batch = {"pixels": x, "labels": torch.arange(2)}
    assert hl.summary(Keywords(), batch)[""].input == {"pixels": (2, 4)}
    class Rows(Dataset):
        def __len__(self): return 4
        def __getitem__(self, i): return {"pixels": torch.ones(4), "labels": i}
    assert hl.summary(Keywords(), DataLoader(Rows(), 2))[""].output == (2, 2)
    assert hl.summary(TwoIn(), [x, torch.randn(2, 6), torch.arange(2)])[""].input == {"0": (2, 4), "1": (2, 6)}
    takes_list = Function(lambda xs: xs[0] + xs[1])
    assert hl.summary(takes_list, [x, x])[""].output == (2, 4)  # what the model takes is given to it as it is
    takes_dict = Function(lambda d: d["a"])
    assert hl.summary(takes_dict, {"a": x})[""].output == (2, 4)


def test_the_first_error_counts_when_no_reading_of_a_batch_helps():
    with pytest.raises(TypeError, match="linear()|list"): hl.summary(nn.Linear(4, 2), [torch.randn(2, 9), torch.arange(2)])


# --- errors

class Breaks(nn.Module):
    def __init__(self, error): super().__init__(); self.error = error
    def forward(self, x): raise self.error


@pytest.mark.parametrize("where", range(4))
@pytest.mark.parametrize("error", [RuntimeError("on purpose"), KeyError("k"), KeyboardInterrupt()], ids=["runtime", "key", "ctrl-c"])
def test_error_in_every_position(where, error):
    layers = [nn.Linear(4, 4), nn.Sequential(nn.ReLU()), nn.BatchNorm1d(4)]
    layers.insert(where, nn.Sequential(Breaks(error)))
    with pytest.raises(type(error)) as raised: untouched(nn.Sequential(*layers), lambda m: hl.summary(m, x))
    assert raised.value is error
    if isinstance(error, KeyboardInterrupt): return
    note = error.__notes__.pop()
    assert f"`{where}.0` (Breaks) got 2×4" in note and ". The table up to there:" in note
    before = ["Linear", "Sequential", "ReLU", "BatchNorm1d"][:[0, 1, 3, 4][where]]
    assert [line.split()[1] for line in note.splitlines() if ":" in line and "table" not in line] == [*before, "Sequential", "Breaks"]


def test_wrong_shape_and_missing_argument():
    with pytest.raises(RuntimeError, match="mat1 and mat2") as raised: hl.summary(nn.Sequential(nn.Linear(4, 8), nn.Linear(9, 2)), x)
    assert "`1` (Linear) takes 9 features and got 8 from `0` (Linear). `Linear(8, 2)` fits" in raised.value.__notes__[0]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'y'") as raised: hl.summary(TwoIn(), x)
    assert "The forward of TwoIn itself got 2×4" in raised.value.__notes__[0]
    with pytest.raises(TypeError, match="unexpected keyword"): hl.summary(nn.Linear(4, 2), x, colums=["params"])


class Counts(hl.HookCallback):
    def hook(self, m, i, o): return 1


def opaque(kind):
    net = nn.Sequential(nn.Linear(4, 2), nn.ReLU()).eval()
    if kind == "exported": return torch.export.export(net, (x,)).module()
    if kind == "traced": return torch.jit.trace(net, x)
    return torch.jit.freeze(torch.jit.script(net)) if kind == "frozen" else torch.jit.script(net)


takes_models = {
    "summary": lambda m: hl.summary(m, x), "summary without an input": hl.summary, "summary of sizes": lambda m: hl.summary(m, input_size=(2, 4)), "model_summary": hl.model_summary,
    "model_sizes": hl.model_sizes, "dummy_eval": hl.dummy_eval, "dummy_batch": hl.dummy_batch, "in_channels": hl.in_channels, "num_features_model": hl.num_features_model,
    "execution_order": lambda m: hl.execution_order(m, x), "Timeline": hl.Timeline, "Timeline of some": lambda m: hl.Timeline(m, "*"),
    "VerboseExecution": hl.VerboseExecution, "ForwardCheck": hl.ForwardCheck, "cost": lambda m: hl.cost(m, x), "find_nan": hl.find_nan,
    "hook_outputs": lambda m: hl.hook_outputs(m, names="*"), "Hooks": lambda m: hl.Hooks(m, print, names=nn.Linear), "Hook": lambda m: hl.Hook(m, print, root=m),
    "layers": hl.layers, "outermost": outermost, "FeatureExtractor": lambda m: hl.FeatureExtractor(m, "*"),
    "ActivationStats": lambda m: hl.ActivationStats().on(m), "Learner": lambda m: hl.synth_learner(model=m, quiet=True, cbs=hl.ActivationStats()).fit(1),
    "HookCallback": lambda m: hl.synth_learner(model=m, quiet=True, cbs=Counts("*")).fit(1),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["exported", "scripted", "traced", "frozen"])
@pytest.mark.parametrize("entry", takes_models)
def test_what_runs_as_one_piece_is_refused_by_all_in_the_same_words(entry, kind):
    if entry in ("Learner", "HookCallback") and kind == "frozen": pytest.skip("a frozen model has no train mode, so it is not trained")
    scripted = "is scripted: torch runs it without hooks.*; hook the model it was made from$"
    exported = "an exported program runs as one graph.*; hook the model it was exported from$"
    words = exported if kind == "exported" else scripted
    with pytest.raises(TypeError, match=words): takes_models[entry](opaque(kind))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("entry", ["summary", "execution_order", "Timeline", "hook_outputs", "find_nan", "FeatureExtractor"])
def test_a_scripted_part_is_named(entry):
    with pytest.raises(TypeError, match="inner is scripted: torch runs it without hooks; hook the model it was made from"):
        model = Function(torch.relu)
        model.inner = torch.jit.script(nn.Linear(4, 4))
        takes_models[entry](model)


# --- models that take gradients in their forward

class Forces(nn.Module):
    "An energy, and its gradient by the places."
    def __init__(self):
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    def forward(self, x):
        x.requires_grad_(True)
        return torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)[0]


class Adapts(nn.Module):
    "A step of gradient descent on its own weights, as MAML does."
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
    def forward(self, x):
        names = dict(self.inner.named_parameters())
        gradients = torch.autograd.grad(self.inner(x).square().sum(), list(names.values()))
        return torch.func.functional_call(self.inner, {name: p - .1*g for (name, p), g in zip(names.items(), gradients)}, (x,))


class GoesBackward(nn.Module):
    "Calls backward itself."
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
    def forward(self, x):
        self.inner(x).sum().backward()
        return self.inner(x)*self.inner.weight.grad.sum()


@pytest.mark.parametrize("with_grads", [False, True])
@pytest.mark.parametrize("kind, ran", [(Forces, ["energy.0", "energy.1", "energy.2", "energy"]), (Adapts, ["inner"]*2), (GoesBackward, ["inner"]*2)])
def test_gradients_in_the_forward(kind, ran, with_grads):
    model, fired = kind().train(), []
    if with_grads:
        for p in model.parameters(): p.grad = torch.full_like(p, 3.)
    handles = [p.register_post_accumulate_grad_hook(lambda p: fired.append(1)) for p in model.parameters()]
    before, given = [(p.grad, p.detach().clone()) for p in model.parameters()], torch.randn(2, 4)
    told = hl.summary(model, given)
    assert told[""].output == ((2, 4)) and told.totals()[-1] == "its forward computes gradients, and their cost is counted, too"
    assert told.multiply_adds > told.rows[1].multiply_adds/max(told.rows[1].calls, 1) > 0
    assert hl.summary(model, given, device="meta").multiply_adds == hl.summary(model, input_size=(2, 4)).multiply_adds == told.multiply_adds
    assert hl.execution_order(model, given) == ran and hl.model_sizes(model) is not None and not hl.dummy_eval(model).requires_grad
    for p, (grad, value) in zip(model.parameters(), before):
        assert p.grad is grad and torch.equal(p, value) and (grad is None or (grad == 3).all())
    for handle in handles: handle.remove()
    assert not given.requires_grad and given.grad is None and not fired and model.training and not hl.hooks_on(model)


def test_gradients_in_the_forward_go_no_further_than_the_input():
    leaf = torch.randn(2, 4, requires_grad=True)
    given = leaf*2
    hl.summary(GoesBackward(), given)
    hl.execution_order(GoesBackward(), given)
    given.sum().backward()  # its graph is whole
    assert torch.equal(leaf.grad, torch.full((2, 4), 2.))


def test_who_switches_gradients_off_gets_the_error_of_the_model():
    with torch.no_grad(), pytest.raises(RuntimeError, match="does not require grad"): hl.summary(Forces(), torch.randn(2, 4))
    with torch.no_grad(), pytest.raises(RuntimeError, match="does not require grad"): hl.execution_order(Forces(), torch.randn(2, 4))


def test_a_model_that_takes_no_gradients_still_runs_without():
    seen = []
    hl.summary(Function(lambda x: seen.append(torch.is_grad_enabled()) or x), x)
    assert seen == [False]


# --- weights that are on meta until they are needed

class Offloaded(nn.Module):
    "Its weights come before each of its layers runs, and go again."
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
        for m in self.body:
            kept = dict(m._parameters)
            def bring(m, _, kept=kept): m._parameters.update(kept)
            def take(m, i, o): m._parameters.update({name: nn.Parameter(p.to("meta")) for name, p in m._parameters.items() if p is not None})
            m.register_forward_pre_hook(bring)
            m.register_forward_hook(take)
            take(m, None, None)
    def forward(self, x): return self.body(x)


def test_offloaded_models_are_measured():
    model = Offloaded().train()
    plain = hl.summary(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)), x)
    for told in (hl.summary(model, x, columns=["output", "multiply_adds", "time"]), hl.summary(model, input_size=(2, 4), columns=["multiply_adds", "time"])):
        assert told.title == "Offloaded, input 2×4" and told[""].time > 0 and told["body.3"].output == (2, 2)
        assert (told.multiply_adds, told.params, told.memory) == (plain.multiply_adds, plain.params, plain.memory)
    assert all(p.is_meta for p in model.parameters()) and not model.body[1].running_mean.is_meta and model.training


def test_meta_models_with_hooks_of_others_stay_on_meta():
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3, device="meta"))
    model.register_forward_pre_hook(lambda m, args: None)
    for told in (hl.summary(model, x), hl.summary(model, input_size=(2, 4))): assert told.title == "Sequential, input 2×4, on meta" and told.multiply_adds == 24
    with pytest.raises(RuntimeError, match="2(x|, )5"): hl.summary(model, torch.randn(2, 5))
    class Adds(nn.Module):  # fails in one way with weights on meta, and in another on meta altogether
        def __init__(self):
            super().__init__()
            self.scale, self.head = nn.Parameter(torch.ones(4, device="meta")), nn.Linear(5, 2, device="meta")
        def forward(self, x): return self.head(x*self.scale)
    broken = Adds()
    broken.register_forward_pre_hook(lambda m, args: None)
    with pytest.raises(RuntimeError, match="2x4|\\[2, 4\\]") as raised: hl.summary(broken, x)
    assert "on meta" in raised.value.__notes__[0]


@pytest.mark.peers
def test_offloaded_by_accelerate():
    accelerate = pytest.importorskip("accelerate")
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    plain = hl.summary(model, x)
    accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    assert all(p.is_meta for p in model.parameters())
    told = hl.summary(model, x, columns=["output", "multiply_adds", "time"])
    assert told[""].time > 0 and (told.title, told.multiply_adds, told.params, told.memory) == (plain.title, plain.multiply_adds, plain.params, plain.memory)
    assert all(p.is_meta for p in model.parameters()) and hl.execution_order(model, x) == ["0", "1", "2", "3"]


# --- the model is left alone

def test_no_reference_is_kept():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    told, alive = hl.summary(model, x, columns=["output", "time", "multiply_adds"]), weakref.ref(model)
    weights = weakref.ref(model[0].weight)
    del model
    gc.collect()
    assert alive() is None and weights() is None and told.params == 20


def test_gradients_and_training_go_on():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 1)).train()
    out = model(x).sum()
    hl.summary(model, x)
    hl.summary(model, x, train=True)
    hl.summary(model, x, device="meta")
    out.backward()  # the graph of a step that is under way is whole
    assert all(p.grad is not None for p in model.parameters())


def test_train_mode_runs_what_training_runs():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout())
    def told(m): return hl.summary(m, x, train=True)
    assert untouched(model, told).title == "Sequential, input 2×4, train mode"
    inception = torchvision.models.inception_v3(init_weights=False, aux_logits=True)
    assert hl.summary(inception, input_size=(2, 3, 299, 299), train=True, device="meta")["AuxLogits"].calls == 1
    assert hl.summary(inception, input_size=(2, 3, 299, 299), device="meta")["AuxLogits"].calls == 0


def test_a_compiled_model_runs_as_it_is_written():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compiled = torch.compile(model, backend="eager")
    compiled(x)
    told = hl.summary(compiled, x)
    assert told.title == "Sequential, input 2×4" and [row.calls for row in told.rows] == [1, 1, 1] and told.multiply_adds == 32


def test_hooks_of_others_fire_and_stay():
    model, fired = nn.Sequential(nn.Linear(4, 4)), []
    handle = model[0].register_forward_hook(lambda m, i, o: fired.append(1))
    hl.summary(model, x)
    assert fired == [1] and len(hl.hooks_on(model)) == 1
    handle.remove()


# --- without the weights

def test_on_meta():
    build = lambda: nn.Sequential(nn.Linear(4, 50_000), nn.Linear(50_000, 50_000))
    told = hl.summary(build, input_size=(8, 4), device="meta")
    assert told.params == 4*50_000 + 50_000**2 + 100_000 and told.multiply_adds == 8*(4*50_000 + 50_000**2) and told.title.endswith("on meta")
    on_meta = nn.Linear(4, 2, device="meta")
    for told in (hl.summary(on_meta, x), hl.summary(on_meta, input_size=(2, 4))): assert told.title == "Linear, input 2×4, on meta"
    model = resnet18()
    here, there = hl.summary(model, input_size=(1, 3, 64, 64)), untouched(model, lambda m: hl.summary(m, input_size=(1, 3, 64, 64), device="meta"))
    assert [vars(row) for row in here.rows] == [vars(row) for row in there.rows]


# --- how it looks

def cnn():
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(512, 10))
    model[1].requires_grad_(False)
    return model


image = dict(input_size=(1, 3, 224, 224))
examples = {
    "cnn": lambda: hl.summary(cnn(), torch.randn(2, 1, 8, 8), columns=["input", "output", "params", "trainable", "multiply_adds", "memory", "calls"], n=120),
    "tied": lambda: hl.summary(Tied(), torch.arange(6)[None], n=60),
    "resnet18": lambda: hl.summary(resnet18(), **image, n=80),
    "resnet18-narrow": lambda: hl.summary(resnet18(), **image, n=50, depth=1),
    "vit_h_14-on-meta": lambda: hl.summary(torchvision.models.vit_h_14, **image, device="meta", n=90),
    "without-input": lambda: hl.summary(Unused(), n=70),
    "unused": lambda: hl.summary(Unused(), torch.randn(2, 5), n=70),
}


@pytest.mark.parametrize("name", examples)
def test_golden_text(name):
    "After a change that is meant: delete the files in tests/profiling/golden, run this twice, and look at what git says."
    file, text = GOLDEN/f"{name}.txt", f"{examples[name]()}\n"
    if not file.exists():
        file.write_text(text, encoding="utf-8")
        pytest.fail(f"{file.name} was not there and is written now: look at it")
    assert text == file.read_text(encoding="utf-8")


def test_width_and_depth(monkeypatch):
    told = hl.summary(resnet18(), input_size=(1, 3, 64, 64))
    for n in (60, 80, 200):
        assert max(map(len, told.text(n=n).splitlines()[1:-3])) <= n
        monkeypatch.setenv("COLUMNS", str(n))
        assert told.text().splitlines() == told.text(n=n).splitlines()
    assert len(told.text(depth=1).splitlines()) < len(told.text(depth=2).splitlines()) < len(told.text().splitlines())
    assert "and 57 layers further inside (depth=None shows all)" in told.text(depth=1)
    assert "11,689,512" in told.text(n=10), "numbers are never cut"


def test_html_is_a_tree_that_is_closed_below_the_depth():
    told = hl.summary(resnet18(), input_size=(1, 3, 64, 64), depth=1)
    html = told._repr_html_()
    assert html.count("<details open>") == 1 and html.count("<details>") == 4 + 8 + 3 and html.count("hl-row") > len(told.rows)
    odd = nn.Sequential()
    odd.add_module("<b>&", nn.ReLU())
    assert "<b>" not in hl.summary(odd, x)._repr_html_() and "&lt;b&gt;&amp;" in hl.summary(odd, x)._repr_html_()


@pytest.mark.peers
def test_rows_are_for_pandas():
    import pandas
    frame = pandas.DataFrame(hl.summary(resnet18(), input_size=(1, 3, 64, 64)).rows)
    assert frame.own.sum() == 11_689_512 and set(frame.type) >= {"Conv2d", "BasicBlock"} and frame.shape == (68, 12)


# --- with a learner

def small(): return nn.Sequential(nn.Linear(1, 50), nn.ReLU(), nn.BatchNorm1d(50), nn.Linear(50, 1))


def test_layer_info_of_a_small_regression():
    expected = [("Linear", 100, True, [1, 50]), ("ReLU", 0, False, [1, 50]), ("BatchNorm1d", 100, True, [1, 50]), ("Linear", 51, True, [1, 1])]
    learn = hl.synth_learner(model=small(), quiet=True)
    assert hl.layer_info(learn, torch.randn(16, 1)) == hl.layer_info(learn) == expected


def test_module_summary_and_model_summary():
    learn = hl.synth_learner(model=small(), quiet=True)
    told = hl.module_summary(learn, torch.randn(16, 1))
    assert told.params == told.trainable == 251 and str(told) == str(learn.summary()) and "Sequential, input 16×1" in str(told)
    assert all(line in str(told).splitlines() for line in ("Optimizer: SGD", "Loss: mse_loss", "Callbacks: TrainEvalCallback, Recorder"))
    assert max(map(len, str(hl.model_summary(resnet18())).splitlines())) <= 70
    assert max(map(len, str(hl.model_summary(resnet18(), 90)).splitlines())) > 70
    assert str(hl.model_summary(learn)).splitlines()[0] == "Sequential, input 16×1"


def test_layer_info_of_a_model_without_layers():
    assert hl.layer_info(hl.synth_learner(quiet=True)) == [("RegModel", 2, True, [1, 1])]


def test_a_model_that_is_there_is_not_moved():
    with pytest.raises(ValueError, match="not on cuda: move it, or pass a function that builds it"): hl.summary(nn.Linear(4, 2), x, device="cuda")
    assert hl.summary(nn.Linear(4, 2), x, device="cpu").params == 10


def test_layer_info_of_several_inputs_and_of_dicts():
    class DLs: train, valid, n_inp = [(x, torch.randn(2, 6), torch.zeros(2))], None, 2
    learn = hl.Learner(DLs(), TwoIn(), lambda *a: 0, quiet=True)
    assert hl.layer_info(learn) == [("Linear", 20, True, [1, 4]), ("Linear", 28, True, [1, 4])]
    learn = hl.Learner(([{"pixels": x}], None), Keywords(), lambda *a: 0, quiet=True)
    assert hl.layer_info(learn) == [("Linear", 10, True, [1, 2])]


@pytest.mark.peers
def test_layer_info_is_that_of_fastai():
    from fastai.callback.hook import layer_info
    from fastai.test_utils import synth_learner
    learn = synth_learner(model=small())
    sample = torch.randn(16, 1)
    theirs = layer_info(learn, sample)
    def plain(row): return row[0], row[1] or 0, bool(row[2]), list(row[3])
    assert [plain(row) for row in theirs] == hl.layer_info(learn, sample) == [plain(row) for row in hl.layer_info(learn)]
    assert hl.module_summary(learn).params == 251 and "Callbacks: TrainEvalCallback" in str(hl.module_summary(learn))


# --- many models

SOME = ["resnet18", "inception_v3", "swin_t", "mobilenet_v3_small"]


def check_vision(name, monkeypatch):
    size, regnet = 299 if name.startswith("inception") else 224, torchvision.models.regnet.BlockParams
    computes_widths = regnet.from_init_params  # with tensors, which must have numbers
    def with_numbers(*args, **kwargs):
        with torch.device("cpu"): return computes_widths(*args, **kwargs)
    monkeypatch.setattr(regnet, "from_init_params", with_numbers)
    with torch.device("meta"): model = torchvision.models.get_model(name, **({"init_weights": False} if name in ("googlenet", "inception_v3") else {}))
    told = check_true(model, torch.empty(1, 3, size, size, device="meta"))
    assert told.multiply_adds > 1e6


@pytest.mark.parametrize("name", SOME)
def test_some_vision_models(name, monkeypatch): check_vision(name, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in torchvision.models.list_models(module=torchvision.models) if name not in SOME])
def test_vision_models(name, monkeypatch): check_vision(name, monkeypatch)


@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_transformers(name):
    model, inputs = text_model(name)
    model.config.use_cache = False
    told = check_true(model, **inputs)
    assert told.multiply_adds > 0


@pytest.mark.gpu
def test_on_a_gpu():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.BatchNorm1d(4)).cuda()
    state = torch.cuda.get_rng_state()
    told = hl.summary(model, x.cuda(), columns=["output", "time", "multiply_adds"])
    assert told.multiply_adds == 32 and told[""].time > 0 and torch.equal(state, torch.cuda.get_rng_state())
    assert hl.summary(model, input_size=(2, 4))[""].output == (2, 4)


# What is no model

class Artifact:
    "Called like a model, and none."
    def __init__(self, message="one input is wanted, and none was given"): self.message = message
    def __call__(self, *args, **kwargs): raise RuntimeError(self.message)


@pytest.mark.parametrize("given,said", [
    (5, "got int"), ("resnet18", "got str"), (Artifact(), "got Artifact"), (lambda n: nn.Linear(n, 2), "got function that cannot be called without arguments"),
    (lambda: 5, "returned no model: expected a torch.nn.Module, got int")],
    ids=["number", "name", "artifact", "function of something", "function that makes a number"])
def test_what_is_no_model_is_refused(given, said):
    with pytest.raises(TypeError, match=said): hl.summary(given, torch.ones(3, 4))


def test_an_exported_program_is_no_model():
    program = torch.export.export(nn.Linear(4, 2), (torch.ones(3, 4),))
    with pytest.raises(TypeError, match="expected a torch.nn.Module, got ExportedProgram"): hl.summary(program, torch.ones(3, 4))


def test_an_error_of_the_function_that_makes_the_model_is_its_own():
    def make(): raise KeyError("no such width")
    for given in (make, functools.partial(make)):
        with pytest.raises(KeyError, match="no such width"): hl.summary(given, torch.ones(3, 4))


@pytest.mark.parametrize("f", [hl.remove_hooks, hl.hooks_on, hl.total_params, hl.has_params, named_layers, hl.forward_source, hl.layers])
@pytest.mark.parametrize("given", [5, "resnet18", [nn.Linear(2, 2)], Artifact()], ids=["number", "name", "list", "artifact"])
def test_one_message_for_what_is_no_model(f, given):
    with pytest.raises(TypeError, match=f"^expected a torch.nn.Module, got {type(given).__name__}$"): f(given)


@pytest.mark.parametrize("f", [hl.layer_info, hl.module_summary, hl.model_summary])
def test_one_message_for_what_is_no_learner(f):
    with pytest.raises(TypeError, match="^expected a learner with its .model, got int$"): f(5)
    if f is hl.model_summary: return
    with pytest.raises(TypeError, match=r"got Linear; for a model, write summary\(model, inputs\)$"): f(nn.Linear(2, 2), torch.ones(1, 2))
