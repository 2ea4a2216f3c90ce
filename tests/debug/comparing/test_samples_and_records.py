"""A record, a model, and two models of which only samples fit into memory get the verdict of two models."""
import copy
import math

import pytest
import torch
from torch import nn

import hooklab as hl
from hooklab.debug.comparing import comparing, records_compared, verdicts
from hooklab.debug.comparing.passes import run_pass
from hooklab.debug.comparing.tensor_store import TensorStore


class Mixer(nn.Module):
    "Mixes places, then channels; the second half of the channels is gated."
    def __init__(self):
        super().__init__()
        self.norm, self.places = nn.GroupNorm(4, 16), nn.Linear(12, 12)
        self.wide, self.narrow = nn.Linear(16, 64), nn.Linear(32, 16)
        self.power = 1.

    def forward(self, x, keep):
        mixed = self.places(self.norm(x)).masked_fill(~keep[:, None], 0.)
        value, gate = self.wide((x + mixed).transpose(1, 2)).chunk(2, -1)
        return x + mixed + self.narrow(value*gate.sigmoid()**self.power).transpose(1, 2)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(40, 16, mode="sum")
        self.first, self.second = Mixer(), Mixer()
        self.head = nn.Sequential(nn.Dropout(.1), nn.Linear(16, 5))

    def forward(self, words, keep):
        x = self.words(words.reshape(-1, 1)).reshape(*words.shape, 16).transpose(1, 2)
        x = self.second(self.first(x, keep), keep)
        return {"scores": self.head(x.mean(-1)), "state": x}


def with_(change):
    "A function that changes a model in place, without gradients."
    def changed(m):
        with torch.no_grad(): change(m)
    return changed


def all_places(m):
    before = m.forward
    m.forward = lambda x, keep: before(x, torch.ones_like(keep))


FAULTS = {
    "one weight": ("first.wide", with_(lambda m: m.first.wide.weight[7, 3].add_(.2))),
    "a bias is zero": ("second.narrow", with_(lambda m: m.second.narrow.bias.zero_())),
    "transposed": ("second.places", with_(lambda m: m.second.places.weight.copy_(m.second.places.weight.T.clone()))),
    "an option": ("first.norm", lambda m: setattr(m.first.norm, "eps", .3)),
    "scaled": ("second.norm", with_(lambda m: m.second.norm.weight.mul_(1.02))),
    "a function": ("first", lambda m: setattr(m.first, "power", 2.)),
    "a mask": ("second", lambda m: all_places(m.second)),
    "the last layer": ("head.1", with_(lambda m: m.head[1].weight[0].neg_())),
    "the first layer": ("words", with_(lambda m: m.words.weight.mul_(1.5))),
    "not a number": ("first.narrow", with_(lambda m: m.first.narrow.weight[0, 0].fill_(math.nan))),
}


@pytest.fixture
def reader():
    torch.manual_seed(0)
    return Reader().eval()


@pytest.fixture
def inputs():
    seeded = torch.Generator().manual_seed(0)
    words = torch.randint(40, (6, 12), generator=seeded)
    return words, torch.rand(6, 12, generator=seeded) > .3


@pytest.fixture
def little_memory(monkeypatch):
    for room in comparing, records_compared, verdicts: monkeypatch.setattr(room, "BUDGET", 40_000)


def two_models(a, b, inputs, folder): return hl.compare(a, b, *inputs)
def record_and_model(a, b, inputs, folder): return hl.compare(hl.record(a, folder/"a.safetensors", *inputs), b)
def model_and_record(a, b, inputs, folder): return hl.compare(a, hl.record(b, folder/"b.safetensors", *inputs))


def two_records(a, b, inputs, folder):
    return hl.compare(*(hl.record(m, folder/f"{i}.safetensors", *inputs) for i, m in enumerate((a, b))))


def sampled_record_and_model(a, b, inputs, folder):
    return hl.compare(hl.record(a, folder/"a.safetensors", *inputs, max_bytes=60_000), b)


def two_sampled_records(a, b, inputs, folder):
    paths = (hl.record(m, folder/f"{i}.safetensors", *inputs, max_bytes=60_000) for i, m in enumerate((a, b)))
    return hl.compare(*paths)


WAYS = record_and_model, model_and_record, two_records, sampled_record_and_model, two_sampled_records
way = pytest.mark.parametrize("way", WAYS, ids=lambda f: f.__name__)
fault = pytest.mark.parametrize("fault", FAULTS)


def faulty(m, fault):
    name, change = FAULTS[fault]
    other = copy.deepcopy(m)
    change(other)
    return other, name


# The same verdict

@way
@fault
def test_a_record_is_judged_like_a_model(reader, inputs, way, fault, tmp_path):
    other, name = faulty(reader, fault)
    assert hl.compare(reader, other, *inputs).first.a == name
    c = way(reader, other, inputs, tmp_path)
    assert not c.same and c.first.a == c.first.b == name, c


@fault
def test_samples_are_judged_like_whole_tensors(reader, inputs, fault, little_memory):
    other, name = faulty(reader, fault)
    c = hl.compare(reader, other, *inputs)
    assert not c.same and c.first.a == name and "only a sample of" in str(c), c


@pytest.mark.parametrize("way", [two_models, record_and_model, model_and_record], ids=lambda f: f.__name__)
def test_a_small_fault_between_layers_needs_float64(reader, inputs, way, tmp_path):
    "What a container makes of right results, and gives to a layer, is measured from a record too."
    other = copy.deepcopy(reader)
    other.first.power = 1 + 2e-6
    c = way(reader, other, inputs, tmp_path)
    assert not c.same and c.first.a == "first" and c.first.own < 100*c.first.noise, c


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("training", [False, True])
def test_equal_models_beyond_the_budget(reader, inputs, training, dtype, little_memory, tmp_path):
    reader.train(training)
    state = {name: t.clone() for name, t in reader.state_dict().items()}
    other = copy.deepcopy(reader).to(dtype)
    c = hl.compare(reader, other, *inputs)
    assert c.same, c
    for one in WAYS:
        c = one(reader, other, inputs, tmp_path)
        assert c.same, (one, c)
    assert all(torch.equal(t, state[name]) for name, t in reader.state_dict().items())
    assert reader.training is training and not any(m._forward_hooks for m in reader.modules())


# A fault that later layers hide

class Fading(nn.Sequential):
    "Of what one layer adds, little arrives at the end."
    def __init__(self, n=14):
        super().__init__(*(nn.Linear(48, 48) for _ in range(n)))
        for m in self: nn.init.uniform_(m.weight, -.03, .03)


def fading(change):
    torch.manual_seed(0)
    a = Fading()
    b = copy.deepcopy(a)
    with torch.no_grad(): change(b)
    return a, b, (torch.randn(64, 48),)


HIDDEN_WAYS = {"live": two_models, "records": two_records, "sampled": two_sampled_records}
hidden_way = pytest.mark.parametrize("way", HIDDEN_WAYS.values(), ids=HIDDEN_WAYS)


@hidden_way
def test_a_fault_that_does_not_reach_the_output(way, little_memory, tmp_path):
    a, b, inputs = fading(lambda m: m[2].weight.mul_(1.01))
    torch.testing.assert_close(a(*inputs), b(*inputs), rtol=1e-6, atol=1e-7)
    c = way(a, b, inputs, tmp_path)
    assert not c.same and c.first.a == "2" and [row.a for row in c.faults] == ["2"], c


@hidden_way
def test_layers_that_make_up_for_each_other_are_no_fault(way, little_memory, tmp_path):
    def moved(m):
        order = torch.randperm(48)
        m[2].weight.copy_(m[2].weight[order])
        m[2].bias.copy_(m[2].bias[order])
        m[3].weight.copy_(m[3].weight[:, order])
    def scaled(m):
        m[2].weight.mul_(4)
        m[2].bias.mul_(4)
        m[3].weight.div_(4)
    for change in moved, scaled:
        a, b, inputs = fading(change)
        c = way(a, b, inputs, tmp_path)
        assert c.same, c


# What is said

def notes(c): return [note for note in c.notes if "sample" in note]


def test_enough_memory_needs_no_note(reader, inputs, tmp_path):
    other, _ = faulty(reader, "one weight")
    for compared in two_models, record_and_model, two_records:
        assert not notes(compared(reader, other, inputs, tmp_path))


def test_how_much_was_compared_is_said(reader, inputs, little_memory):
    other, _ = faulty(reader, "the first layer")
    (note,) = notes(hl.compare(reader, other, *inputs))
    k = int(note.rpartition("at most ")[2].split()[0])
    assert "more than 0 MiB" in note and 64 <= k < reader.words.weight.numel()
    (note,) = notes(hl.compare(reader, copy.deepcopy(reader), *inputs))
    assert "so only a sample of" in note


def test_a_candidate_that_does_not_fit_beside_a_record(reader, inputs, little_memory, tmp_path):
    "The record has all numbers, so the layer at fault is measured; how far apart the others are is seen in samples."
    other, name = faulty(reader, "the first layer")
    path = hl.record(reader, tmp_path/"a.safetensors", *inputs)
    c = hl.compare(path, other)
    assert c.first.a == name and len(notes(c)) == 1 and "need more than" in notes(c)[0], c
    assert len(notes(hl.compare(path, copy.deepcopy(reader)))) == 0  # it needs nothing but what is in the record


def test_a_record_of_samples_is_the_reason_and_no_other(reader, inputs, tmp_path):
    c = sampled_record_and_model(reader, copy.deepcopy(reader), inputs, tmp_path)
    assert len(notes(c)) == 1 and "a.safetensors has only a sample of" in notes(c)[0]


# Odd tensors

def with_gaps(y):
    "NaN at some places, and infinite at others."
    return torch.where(y > 1, math.nan, y).masked_fill(y < -1, -math.inf)


ODD = {
    "with gaps": with_gaps,
    "infinite": lambda y: y.masked_fill(y > 1, math.inf),
    "complex": lambda y: torch.polar(y.abs(), y).conj(),
    "quantized": lambda y: torch.quantize_per_tensor(y.float(), .1, 0, torch.qint8),
    "sparse": lambda y: y.relu().to_sparse(),
    "float8": lambda y: y.to(torch.float8_e4m3fn),
    "whole": lambda y: (10*y).long(),
    "half": lambda y: y.half(),
    "nested": lambda y: torch.nested.nested_tensor([y, y[:3]]),
    "beside an empty one": lambda y: (y[:0], y, y.to("meta"), y.sum()),
}


class Makes(nn.Module):
    def __init__(self, make, factor=1.):
        super().__init__()
        self.lin, self.make, self.factor = nn.Linear(64, 64), make, factor

    def forward(self, x): return self.make(self.factor*self.lin(x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("memory", ["little", "enough"])
@pytest.mark.parametrize("kind", ODD)
def test_odd_outputs(kind, memory, request):
    if memory == "little": request.getfixturevalue("little_memory")
    torch.manual_seed(0)
    a, x = Makes(ODD[kind]), 2*torch.randn(150, 64)
    c = hl.compare(a, copy.deepcopy(a), x)
    assert c.same and bool(notes(c)) is (memory == "little"), c
    b = copy.deepcopy(a)
    b.factor = 1.5
    c = hl.compare(a, b, x)
    assert not c.same and c.first.a == "" and c.first.error > .1, c


@pytest.mark.filterwarnings("ignore")
def test_conjugate_numbers_are_compared_with_both_parts(tmp_path):
    class Turn(nn.Module):
        def __init__(self, angle):
            super().__init__()
            self.lin, self.angle = nn.Linear(8, 8), angle
        def forward(self, x):
            z = self.lin(x)
            return torch.complex(z.cos(), (z*self.angle).sin()).conj()
    torch.manual_seed(0)
    a, x = Turn(1.), torch.randn(5, 8)
    b = copy.deepcopy(a)
    b.angle = 1.5
    path = hl.record(a, tmp_path/"a.safetensors", x)
    for c in hl.compare(a, b, x), hl.compare(path, b), hl.compare(path, hl.record(b, tmp_path/"b.safetensors", x)):
        assert not c.same and c.first.a == "", c
    assert hl.compare(path, copy.deepcopy(a)).same


def test_a_number_that_is_missing_in_one_is_a_fault(tmp_path):
    class Log(nn.Module):
        def __init__(self, least):
            super().__init__()
            self.lin, self.least = nn.Linear(6, 6), least
        def forward(self, x): return self.lin(x).clamp(min=self.least).log()
    torch.manual_seed(0)
    a, x = Log(-9.), -torch.rand(4, 6)
    nn.init.eye_(a.lin.weight)
    nn.init.zeros_(a.lin.bias)
    b = copy.deepcopy(a)
    b.least = .5
    path = hl.record(a, tmp_path/"a.safetensors", x)
    for c in hl.compare(a, b, x), hl.compare(b, a, x), hl.compare(path, b), hl.compare(b, path):
        assert not c.same and c.first.a == "", c
    assert hl.compare(path, copy.deepcopy(a)).same


# The passes

def test_a_pass_with_a_full_store_has_only_forms(reader, inputs):
    store, whole = TensorStore(3000), run_pass(reader, (inputs, {}))
    seen = run_pass(reader, (inputs, {}), store)
    assert store.is_full and not seen.is_whole and whole.is_whole
    assert [v.shape for v in seen.values()] == [v.shape for v in whole.values()]
    root = seen.calls[-1]
    for v, t in zip(root.inputs, inputs): assert v.n_kept is None and torch.equal(v.tensor(), t)
    assert all(v.kept().numel() == 0 for v in root.output)


def test_a_pass_of_samples_has_the_same_places_everywhere(reader, inputs):
    whole, seen = (run_pass(reader, (inputs, {}), store) for store in (None, TensorStore(sample=70)))
    for one, other in zip(whole.values(), seen.values()):
        if other.n_kept is not None: assert other.n_kept == 70 < one.tensor().numel()
        assert torch.equal(other.kept(), other.kept_of(one.tensor()))


@pytest.mark.parametrize("second", [False, True])
def test_a_model_that_fails_leaves_nothing(reader, inputs, second, little_memory):
    "Also when it fails only in the pass that keeps samples."
    def forward(words, keep, before=reader.forward):
        n_calls.append(1)
        if not second or len(n_calls) > 1: raise ZeroDivisionError("no more")
        return before(words, keep)
    n_calls, reader.forward = [], forward
    with pytest.raises(RuntimeError, match="no more"): hl.compare(reader, copy.deepcopy(Reader()), *inputs)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in reader.modules())
