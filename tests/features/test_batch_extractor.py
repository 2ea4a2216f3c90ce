"""BatchExtractor: columns in, columns out, with the features of extract to the last bit; errors name what is wrong."""
import pickle
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hooklab.features.batch_extractor import BatchExtractor, as_array
from hooklab.features.dataset import extract, load_features
from hooklab.features.extractor import FeatureExtractor
from hooklab.features.on_ray import map_features, write_features
from support.nets import Pair

torch.set_num_threads(1)


class Net(nn.Module):
    "Works in place on its input, calls `relu` twice, has a layer for pairs, and remembers in which mode it ran."
    def __init__(self):
        super().__init__()
        self.inplace, self.a, self.bn, self.relu = nn.ReLU(inplace=True), nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU()
        self.pair, self.b = Pair(), nn.Linear(8, 3)
        self.modes = set()

    def forward(self, x, shift=0., *, times=1.):
        self.modes.add((self.training, torch.is_grad_enabled()))
        x = self.relu(self.bn(self.a(self.inplace(x)*times + shift)))
        return self.b(self.relu(self.pair(x)["twice"][0] - 1))


@pytest.fixture
def x(): return torch.randn(57, 6, generator=torch.Generator().manual_seed(1))


def batches(x, size=10):
    for start in range(0, len(x), size):
        yield {"x": x[start:start + size].numpy(), "id": np.arange(start, min(start + size, len(x)))}


def joined(extractor, x, size=10):
    parts = [extractor(batch) for batch in batches(x, size)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


# What comes out

ASKED = [["a", "relu", "b"], "relu#1", "*", nn.Linear, {"relu#1": "second", "": "output"}, "pair", ["b", ""]]


@pytest.mark.parametrize("names", ASKED, ids=str)
def test_columns_are_the_files_of_extract(net, x, names, tmp_path):
    columns = joined(BatchExtractor(net, names, "x", keep="id"), x.clone())
    loader = DataLoader(TensorDataset(x.clone()), batch_size=10)
    folder = extract(net, loader, names, tmp_path/"files", progress=False)
    assert columns.pop("id").tolist() == list(range(57)) and len(columns) >= 1
    for name, values in columns.items():
        stored = load_features(folder, name)[:]
        assert values.dtype == stored.numpy().dtype and np.array_equal(values, stored.numpy()), name
    assert len(load_features(folder, next(iter(columns)))) == 57


def test_names_of_columns(net, x):
    batch = next(batches(x))
    def names(asked, **options): return list(BatchExtractor(net, asked, "x", **options)(batch))
    assert names(["relu", "b"]) == ["relu", "relu#1", "b"]
    assert names({"relu#1": "second", "": "output"}, keep=["id", "x"]) == ["id", "x", "second", "output"]
    assert names("pair") == ["pair:twice.0", "pair:number"]
    assert names("a", stop=True) == ["a"]


def test_stop_ends_the_pass(net, x):
    ran = []
    net.b.register_forward_pre_hook(lambda m, i: ran.append(1))
    BatchExtractor(net, "a", "x", stop=True)(next(batches(x)))
    assert not ran
    BatchExtractor(net, "a", "x")(next(batches(x)))
    assert ran


def test_the_model_is_left_as_it_was(net, x):
    net.bn.eval()
    modes, buffers = [m.training for m in net.modules()], [b.clone() for b in net.buffers()]
    BatchExtractor(net, "b", "x")(next(batches(x)))
    assert net.modes == {(False, False)}
    assert [m.training for m in net.modules()] == modes == [True, True, True, False, True, True, True]
    assert all(map(torch.equal, net.buffers(), buffers)) and not any(m._forward_hooks for m in net.modules())


def test_a_shared_batch_is_not_written_to(net, x):
    "The first layer works in place, and an engine hands out memory that others read."
    batch = next(batches(x))
    batch["x"].flags.writeable = False
    before = batch["x"].copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns of arrays that it must not write to
        BatchExtractor(net, "b", "x")(batch)
    assert np.array_equal(batch["x"], before) and (before < 0).any()


# Dtypes

@pytest.mark.parametrize("dtype, column", [
    (torch.float64, "float64"), (torch.float32, "float32"), (torch.float16, "float16"), (torch.bfloat16, "float32"),
    (torch.float8_e4m3fn, "float32"), (torch.float8_e5m2, "float32"), (torch.int64, "int64"), (torch.int32, "int32"),
    (torch.int8, "int8"), (torch.uint8, "uint8"), (torch.bool, "bool")], ids=str)
def test_dtypes(dtype, column):
    class To(nn.Module):
        def forward(self, x): return x.to(dtype)
    model, x = nn.Sequential(To()), torch.linspace(-2, 100, 40).view(10, 4)
    found = BatchExtractor(model, "0", "x")({"x": x.numpy()})["0"]
    assert found.dtype == column and torch.equal(torch.tensor(found).to(dtype).double(), x.to(dtype).double())


def test_every_bfloat16_and_float8_survives():
    of_one_byte = [(dtype, torch.int8) for dtype in (torch.float8_e4m3fn, torch.float8_e5m2)]
    for dtype, bits in [(torch.bfloat16, torch.int16), *of_one_byte]:
        info = torch.iinfo(bits)
        every = torch.arange(info.min, info.max + 1).to(bits).view(dtype)
        back = torch.tensor(as_array(every)).to(dtype)
        number = ~every.float().isnan()
        assert torch.equal(back.float().isnan(), ~number) and number.sum() > 200
        assert torch.equal(every.view(bits)[number], back.view(bits)[number])


def test_complex_numbers_come_as_pairs():
    z = torch.complex(torch.tensor([1., 2.]), torch.tensor([3., -4.]))
    for t in (z, z.conj(), z.to(torch.complex128)):
        assert as_array(t).shape == (2, 2) and torch.equal(torch.view_as_complex(torch.tensor(as_array(t))), t)


def test_dtype_that_is_asked_for(net, x):
    found = BatchExtractor(net, ["b", "pair"], "x", dtype=torch.float16)(next(batches(x)))
    dtypes = {name: values.dtype.name for name, values in found.items()}
    assert dtypes == {"pair:twice.0": "float16", "pair:number": "int64", "b": "float16"}


# What the model is called with

@pytest.mark.parametrize("inputs", [
    ["x", "shift"], {"x": "x", "shift": "shift"}, {"shift": "shift", "x": "x"}, lambda b: (b["x"], b["shift"]),
    lambda b: {"x": b["x"], "shift": torch.tensor(b["shift"])}, lambda b: (torch.tensor(b["x"]), b["shift"])],
    ids=["list", "dict", "dict, turned", "arrays", "dict of both", "tuple of both"])
def test_several_inputs(net, x, inputs):
    shift = torch.randn(57, 1)
    found = BatchExtractor(net, "b", inputs)({"x": x.numpy(), "shift": shift.numpy()})["b"]
    assert not np.array_equal(found, BatchExtractor(net, "b", "x")({"x": x.numpy()})["b"])
    with torch.no_grad(): right = FeatureExtractor(net.eval(), "b", detach=True)(x.clone(), shift)["b"]
    assert np.array_equal(found, right.numpy())


def test_one_input_of_a_function(net, x):
    right = BatchExtractor(net, "b", "x")({"x": x.numpy()})["b"]
    for f in (lambda b: b["x"], lambda b: torch.tensor(b["x"])):
        assert np.array_equal(BatchExtractor(net, "b", f)({"x": x.numpy()})["b"], right)


def test_kinds_of_columns(net, x):
    right = BatchExtractor(net, "b", "x")({"x": x.numpy()})["b"]
    rows = np.empty(57, object)
    rows[:] = [row.numpy() for row in x]  # as Ray gives a column whose rows may differ
    for values in (x.clone(), rows, list(rows), list(x)):
        assert np.array_equal(BatchExtractor(net, "b", "x")({"x": values})["b"], right)


# The model, or a function that builds it

def test_a_function_is_called_once(net, x):
    calls = []
    def build():
        calls.append(1)
        return net
    extractor = BatchExtractor(build, "b", "x")
    for batch in batches(x): extractor(batch)
    assert calls == [1]


def test_random_weights_are_the_same_everywhere(x):
    def build(): return nn.Sequential(nn.Linear(6, 3))
    state = torch.get_rng_state()
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        found.append(BatchExtractor(build, "0", "x")(next(batches(x)))["0"])
        assert torch.equal(torch.rand(1), torch.rand(1, generator=torch.Generator().manual_seed(seed)))
    torch.set_rng_state(state)
    assert np.array_equal(*found)


def test_an_extractor_can_be_pickled(net, x):
    extractor = BatchExtractor(net, ["b", "relu#1"], "x", keep="id")
    there, here = pickle.loads(pickle.dumps(extractor)), extractor
    found, right = there(next(batches(x))), here(next(batches(x)))
    assert list(found) == list(right) and all(np.array_equal(found[name], right[name]) for name in right)
    assert repr(there) == "BatchExtractor with FeatureExtractor of Net: b, relu#1, detach=True, to=cpu"


def test_it_is_moved_only_where_it_is_asked(net):
    assert next(BatchExtractor(net, "b", "x").extractor.model.parameters()).device.type == "cpu"
    assert next(BatchExtractor(Net, "b", "x", device="meta").extractor.model.parameters()).device.type == "meta"


@pytest.mark.gpu
def test_on_a_gpu(net, x):
    right = BatchExtractor(net, "b", "x")({"x": x.numpy()})["b"]
    found = BatchExtractor(net, "b", "x", device="cuda")({"x": x.numpy()})["b"]
    assert next(net.parameters()).is_cuda and np.allclose(found, right, atol=1e-4)


# What is wrong

def says(kind, text, work, *args):
    with pytest.raises(kind) as e: work(*args)
    said = "\n".join([str(e.value), *getattr(e.value, "__notes__", [])])
    assert text in said, said


def ragged(*sizes):
    rows = np.empty(len(sizes), object)
    rows[:] = [np.zeros((n, 6), "float32") for n in sizes]
    return rows


@pytest.mark.parametrize("kind, text, options, batch", [
    (LookupError, "no column 'y'; there is 'x', 'id'", {"inputs": "y"}, {}),
    (LookupError, "no column 'ids'; there is 'id'", {"keep": "ids"}, {}),
    (LookupError, "no column 'y'; there is 'x', 'id'", {"inputs": {"x": "y"}}, {}),
    (ValueError, "the rows of column 'x' have different shapes (2×6, 3×6): change that first, or pass inputs=",
     {}, {"x": ragged(3, 2)}),
    (TypeError, "column 'x' holds <U1, which can't become a tensor: change that first", {},
     {"x": np.array(["a", "b"])}),
    (TypeError, "column 'x' holds object, which can't become a tensor", {}, {"x": [{"a": 1}]}),
    (RuntimeError, "raised for a batch of 2 rows; the model got 2×5 torch.float32", {},
     {"x": np.zeros((2, 5), "float32")}),
    (RuntimeError, "raised for a batch of 2 rows; the model got 2×6 torch.float64", {},
     {"x": np.zeros((2, 6))}),
    (TypeError, "raised for a batch of 10 rows; the model got y 10×6 torch.float32",
     {"inputs": {"y": "x"}}, {}),
    (ValueError, "b: a kept column and a feature have this name; a dict such as", {"keep": "b"},
     {"b": np.arange(10)}),
    (ValueError, "is of shape (1, 3) for 2 samples", {"inputs": lambda b: torch.zeros(1, 6)}, {"x": np.zeros((2, 6))}),
])
def test_bad_batches(net, x, kind, text, options, batch):
    options = {"inputs": "x", **options}
    says(kind, text, BatchExtractor(net, "b", **options), next(batches(x)) | batch)


def test_no_columns(net): says(ValueError, "the batch has no columns", BatchExtractor(net, "b", "x"), {})


@pytest.mark.parametrize("model, names, kind, text", [
    (Net, "c", LookupError, "no layer of this Net matches 'c'"), (Net, [], ValueError, "no layer was requested"),
    (Net, "d*", LookupError, "no layer of this Net matches 'd*'"),
    (lambda: 5, "b", TypeError, "expected a torch.nn.Module, got int"),
    ("net", "b", TypeError, "expected a torch.nn.Module, got str")], ids=range(5))
def test_bad_models(model, names, kind, text): says(kind, text, BatchExtractor, model, names, "x")


def test_after_an_error_the_model_is_as_it_was(net, x):
    with pytest.raises(RuntimeError): BatchExtractor(net, "b", "x")({"x": np.zeros((2, 5), "float32")})
    assert all(m.training for m in net.modules()) and not any(m._forward_hooks for m in net.modules())


# Without Ray

@pytest.mark.parametrize("work", [
    lambda net: map_features(None, net, "b", "x"), lambda net: write_features(None, "folder")], ids=["map", "write"])
@pytest.mark.parametrize("lacking", ["ray", "ray.data"])
def test_the_error_names_the_command(net, monkeypatch, work, lacking):
    monkeypatch.setitem(sys.modules, lacking, None)
    if lacking == "ray.data": monkeypatch.setitem(sys.modules, "ray", type(sys)("ray"))  # its core is there
    says(ImportError, "Ray Data is not installed. Run: python -m pip install 'hooklab[ray]'", work, net)
