"Runs in files, and what `compare` says of them."
import copy
import errno
import json
import math
import os
import warnings

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import hooklab as hl
from hooklab.debug.comparing.records import encoded_kind
from hooklab.hooks import files
from hooklab.hooks.tensor_files import facts_in, open_tensors


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)
        self.drop, self.scale = nn.Dropout(.2), 1.

    def forward(self, x, shift=None):
        x = x + self.scale*self.drop(self.down(self.up(self.norm(x)).relu()))
        return x if shift is None else x + shift


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.blocks, self.leave = nn.Embedding(11, 16), nn.ModuleList([Block(), Block()]), nn.Linear(16, 4)

    def forward(self, ids, *, shift=None, flags=()):
        x = self.enter(ids)
        for block in self.blocks: x = block(x, shift)
        return {"logits": self.leave(x), "last": x}


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture
def ids(): return torch.randint(11, (3, 5), generator=torch.Generator().manual_seed(0))


def faulty(net, kind):
    "A copy with a fault in `blocks.1`; and the name of the layer at fault."
    m = copy.deepcopy(net)
    block = m.blocks[1]
    with torch.no_grad():
        if kind == "weight": block.up.weight[3, 4] += .1
        if kind == "eps": block.norm.eps = .1
        if kind == "scale": block.scale = .9
        if kind == "bias": block.down.bias.zero_()
    return m, {"weight": "blocks.1.up", "eps": "blocks.1.norm", "scale": "blocks.1", "bias": "blocks.1.down"}[kind]


def record(model, path, *args, **kwargs): return hl.record(model, path, *args, **kwargs)


@pytest.mark.parametrize("kind, said", [
    ("weight", "weight differs"), ("eps", "eps is 0.1 instead of 1e-05"), ("scale", "scale is 0.9"),
    ("bias", "bias differs (its norm is 0")])
def test_a_fault_is_found_from_a_record(net, ids, tmp_path, kind, said):
    m, name = faulty(net, kind)
    before, after = record(net, tmp_path/"a.safetensors", ids), record(m, tmp_path/"b.safetensors", ids)
    what = said.split(" (")[0].split(" is")[0]
    for one, other in (before, m), (before, after), (str(before), str(after)), (m, before):
        c = hl.compare(one, other)
        assert not c.same and c.first.a == c.first.b == name and what in c.first.what, c
    assert [row.a for row in hl.compare(before, m).faults] == [name]
    assert said in hl.compare(before, m).first.what


def test_equal_models_are_the_same(net, ids, tmp_path):
    before = record(net, tmp_path/"a.safetensors", ids)
    c = hl.compare(before, copy.deepcopy(net))
    assert c.same and {row.kind for row in c.rows} == {"equal"}
    assert hl.compare(before, record(net, tmp_path/"b.safetensors", ids)).same


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_another_precision_is_noise(net, ids, tmp_path, dtype):
    m = copy.deepcopy(net).to(dtype)
    before, after = record(net, tmp_path/"a.safetensors", ids), record(m, tmp_path/"b.safetensors", ids)
    for one, other in (before, m), (after, net), (before, after), (after, before):
        c = hl.compare(one, other)
        assert c.same, c


def test_other_names_and_merged_layers_are_noise(tmp_path):
    torch.manual_seed(0)
    a = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3)).eval()
    with torch.no_grad():
        for p in a[1].parameters(): p.uniform_(.5, 1.5)
    folded = torch.nn.utils.fuse_conv_bn_eval(a[0], a[1])
    b = nn.Sequential(nn.Sequential(folded, nn.ReLU()), a[3]).eval()
    x = torch.randn(2, 3, 12, 12)
    channels_last = x.contiguous(memory_format=torch.channels_last)
    before, after = record(a, tmp_path/"a.safetensors", x), record(b, tmp_path/"b.safetensors", channels_last)
    for c in hl.compare(before, b), hl.compare(before, after), hl.compare(b, before): assert c.same, c
    with torch.no_grad(): b[1].weight[0, 0, 0, 0] += .1
    after = record(b, tmp_path/"b.safetensors", x)
    for c in hl.compare(before, b), hl.compare(before, after): assert not c.same, c


def test_dropout_drops_the_same_whatever_the_seed(net, ids, tmp_path):
    net.train()
    before = record(net, tmp_path/"a.safetensors", ids)
    torch.manual_seed(7)
    state = torch.get_rng_state()
    after = record(net, tmp_path/"b.safetensors", ids)
    assert hl.compare(before, net).same and hl.compare(before, after).same
    assert torch.equal(torch.get_rng_state(), state) and net.training
    c = hl.compare(before, copy.deepcopy(net).eval())
    assert not c.same and "train mode" in c.first.what


def test_the_model_stays_as_it_is(net, ids, tmp_path):
    state, before = {n: t.clone() for n, t in net.state_dict().items()}, ids.clone()
    record(net, tmp_path/"a.safetensors", ids)
    hl.compare(tmp_path/"a.safetensors", net)
    assert all(torch.equal(t, state[n]) for n, t in net.state_dict().items()) and torch.equal(ids, before)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())
    assert next(net.parameters()).dtype == torch.float32


def test_keyword_arguments_come_from_the_record(net, ids, tmp_path):
    shift = torch.randn(3, 5, 16)
    before = record(net, tmp_path/"a.safetensors", ids, shift=shift, flags=(1, None))
    assert hl.compare(before, net).same and hl.compare(before, net, ids, shift=shift, flags=(1, None)).same
    for args, kwargs in [((ids + 1,), {"shift": shift}), ((ids,), {}), ((ids[:2],), {"shift": shift})]:
        with pytest.raises(ValueError, match="has a record of different inputs"):
            hl.compare(before, net, *args, **kwargs)
    other = record(net, tmp_path/"b.safetensors", ids, shift=shift + 1)
    with pytest.raises(ValueError, match="records of different inputs"): hl.compare(before, other)


# What is in the file

def test_a_limit_is_kept_and_said(tmp_path):
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(4)]
    a, x = nn.Sequential(*blocks, nn.Linear(64, 3)), torch.randn(32, 64)
    before = record(a, tmp_path/"a.safetensors", x, max_bytes=100_000)
    assert before.stat().st_size <= 100_000
    assert hl.compare(before, copy.deepcopy(a)).same
    b = copy.deepcopy(a)
    with torch.no_grad(): b[2][0].weight[1] += .1
    after = record(b, tmp_path/"b.safetensors", x, max_bytes=60_000)
    assert after.stat().st_size <= 60_000
    for c in hl.compare(before, b), hl.compare(before, after):
        assert c.first.a == "2.0" and "only a sample of" in str(c), c
    with pytest.raises(ValueError, match="max_bytes is 9000"): record(a, tmp_path/"c.safetensors", x, max_bytes=9000)
    assert not (tmp_path/"c.safetensors").exists()


def test_some_layers_only(net, ids, tmp_path):
    before = record(net, tmp_path/"a.safetensors", ids, names="blocks.*")
    assert "leave" not in {row.a for row in hl.compare(before, net).rows} and hl.compare(before, net).same
    m, name = faulty(net, "weight")
    assert hl.compare(before, m).first.a == name
    assert {row.a for row in hl.compare(before, m, names="blocks.1*").rows if row.a} >= {"blocks.1.up", "blocks.1"}
    with pytest.raises(LookupError): record(net, tmp_path/"b.safetensors", ids, names="nothing*")
    with pytest.raises(LookupError): hl.compare(before, m, names="nothing*")
    assert not (tmp_path/"b.safetensors").exists()


def test_equal_tensors_are_there_once_and_there_is_no_code(net, ids, tmp_path):
    with open_tensors(record(net, tmp_path/"a.safetensors", ids)) as f:
        facts = facts_in(f)
        assert facts["kind"] == "record" and facts["versions"]["torch"] == torch.__version__
        root = facts["calls"][-1]
        assert root["name"] == "" and {"logits", "last"} == {v["path"] for v in root["output"]}
        last = next(v["key"] for v in root["output"] if v["path"] == "last")
        block = next(c for c in facts["calls"] if c["name"] == "blocks.1")
        assert block["output"][0]["key"] == last
        assert json.loads(json.dumps(facts["modules"]["leave"]["tensors"]["weight"]))["shape"] == [4, 16]


def test_the_first_input_is_there_once(net, ids, tmp_path):
    "Its key is 0, which is no reason to write it again."
    with open_tensors(record(net, tmp_path/"a.safetensors", ids)) as f: facts = facts_in(f)
    keys = [v["key"] for v in facts["calls"][-1]["inputs"]]
    assert keys and facts["inputs"] == {"list": [{"tuple": [{"tensor": keys[0]}]}, {"dict": {}}]}


@pytest.mark.parametrize("content, said", [
    ({"list": [{"tuple": []}, {"dict": {}}]}, ""), ({"dict": 5}, "inputs is no dict"),
    ({"dict": []}, "inputs is no dict"), ({"list": {}}, "inputs is no list"), ({"tuple": 5}, "inputs is no tuple")])
def test_the_form_of_arguments(content, said): assert encoded_kind(content, "inputs") == said


def test_a_call_of_ones_own(net, ids, tmp_path):
    before = record(net, tmp_path/"a.safetensors", call=lambda m: m(ids))
    assert hl.compare(before, net, call=lambda m: m(ids)).same
    with pytest.raises(ValueError, match="recorded with call="): hl.compare(before, net)


def test_pairs_by_hand(net, ids, tmp_path):
    before, (m, name) = record(net, tmp_path/"a.safetensors", ids), faulty(net, "bias")
    for pairs in {"leave": "leave"}, lambda n: n: assert hl.compare(before, m, pairs=pairs).first.a == name
    assert hl.compare(m, before, pairs={"leave": "leave"}).first.a == name
    assert hl.compare(m, before, pairs=lambda n: n).first.a == name


# Bad input

def test_files_that_are_no_records(net, ids, tmp_path):
    before = record(net, tmp_path/"a.safetensors", ids)
    (tmp_path/"half.safetensors").write_bytes(before.read_bytes()[:before.stat().st_size//2])
    (tmp_path/"text.safetensors").write_text("hello, I am a text")
    save_file({"w": torch.ones(2)}, tmp_path/"weights.safetensors")
    for name, error, said in [
        ("half", ValueError, "was cut off"), ("text", ValueError, "is no record of a run"),
        ("weights", ValueError, "no record of a run"), ("none", FileNotFoundError, "there is no file"),
    ]:
        path = tmp_path/f"{name}.safetensors"
        for pair in (path, net), (net, str(path)), (before, path):
            with pytest.raises(error, match=said): hl.compare(*pair)
    with pytest.raises(OSError, match="is a folder"): hl.compare(tmp_path, net)
    with pytest.raises(TypeError, match="expected a torch.nn.Module"): hl.compare(before, 3)
    with pytest.raises(ValueError, match="no gradients"): hl.compare(before, net, backward=lambda out: out.sum())
    with pytest.raises(TypeError, match="leave out inputs"): hl.compare(before, before, ids)


def test_another_model(net, ids, tmp_path):
    before = record(net, tmp_path/"a.safetensors", ids)
    with pytest.raises(RuntimeError, match=r"the model \(Linear\) cannot be called with what is in"):
        hl.compare(before, nn.Linear(3, 2))

    class Other(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Embedding(11, 7), nn.GRU(7, 3)
        def forward(self, ids): return self.two(self.one(ids))[0]

    c = hl.compare(before, Other())
    assert not c.same and "No layer of one has a partner" in str(c)


def test_places_that_cannot_be_written(net, ids, tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="there is no folder"): record(net, tmp_path/"no"/"a.safetensors", ids)
    with pytest.raises(IsADirectoryError, match="is a folder"): record(net, tmp_path, ids)
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        with pytest.raises(PermissionError, match="cannot write to the folder"):
            record(net, tmp_path/"a.safetensors", ids)

    def full(f): raise OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device.*Nothing was recorded"):
        record(net, tmp_path/"a.safetensors", ids)
    assert not list(tmp_path.iterdir())


def test_the_error_of_the_model(net, tmp_path):
    with pytest.raises(RuntimeError): record(net, tmp_path/"a.safetensors", torch.randn(3))
    assert not list(tmp_path.iterdir()) and not any(m._forward_hooks for m in net.modules())


def test_a_model_that_cannot_run_in_float64(tmp_path):
    class Stubborn(nn.Linear):
        def forward(self, x):
            if x.dtype == torch.float64: raise TypeError("float32 only")
            return super().forward(x)
    torch.manual_seed(0)
    a, x = nn.Sequential(Stubborn(8, 8), nn.Tanh(), Stubborn(8, 2)), torch.randn(4, 8)
    b = copy.deepcopy(a)
    before = record(a, tmp_path/"a.safetensors", x)
    with torch.no_grad(): b[2].weight += .1
    after = record(b, tmp_path/"b.safetensors", x)
    assert "float32 only" in str(hl.compare(before, b))
    assert hl.compare(before, a).same and hl.compare(before, b).first.a == "2" == hl.compare(before, after).first.a


def test_numbers_that_are_hard_to_keep(tmp_path):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.Identity()
        def forward(self, x):
            z = torch.fft.fft(self.act(x).double())
            return z, torch.zeros(0, 3), x.log(), x.T
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.randn(4, 4)
        before, after = (record(Odd(), tmp_path/name, x) for name in ("a.safetensors", "b.safetensors"))
        assert hl.compare(before, Odd()).same and hl.compare(before, after).same


class OfRows(nn.Module):
    "Takes nested tensors, and pads what it returns."
    def __init__(self, n=8):
        super().__init__()
        self.first, self.last = nn.Linear(4, n), nn.Linear(n, 2)

    def forward(self, x):
        x = self.last(self.first(x).relu())
        return x.to_padded_tensor(0.) if x.is_nested else x


@pytest.mark.filterwarnings("ignore")  # torch: "in prototype stage"
@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_nested_tensors(tmp_path, layout):
    torch.manual_seed(0)
    model = OfRows()
    x = torch.nested.nested_tensor([torch.randn(3, 4), torch.randn(5, 4)], layout=layout)
    before, after = (record(model, tmp_path/name, x) for name in ("a.safetensors", "b.safetensors"))
    assert hl.compare(before, after).same
    assert hl.compare(before, model, x).same
    other = copy.deepcopy(model)
    with torch.no_grad(): other.last.bias += 1
    assert hl.compare(before, other, x).first.b == "last"
    assert hl.compare(before, record(other, tmp_path/"c.safetensors", x)).first.b == "last"


def test_an_output_of_another_shape_has_an_endless_error(tmp_path):
    x = torch.randn(3, 4)
    torch.manual_seed(0)
    before, after = (record(OfRows(n), tmp_path/f"{n}.safetensors", x) for n in (8, 16))
    row = next(row for row in hl.compare(before, after).rows if row.b == "first")
    assert row.error == math.inf
