"""map_features and write_features with Ray on two CPUs: the numbers of one process, in order, even if a worker dies."""
import json
import logging
import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hooklab.features.dataset import extract, load_features
from hooklab.features.on_ray import cpus_of_a_worker, map_features, write_features
from support.checks import REPO

pytestmark = pytest.mark.peers
torch.set_num_threads(1)
N, SIZE = 300, 16


@pytest.fixture(scope="module")
def ray():
    "Ray on this machine: two CPUs, no dashboard, no report of its use, and quiet."
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", str(REPO))  # its workers find the hooklab that is under test
        patch.setenv("OMP_NUM_THREADS", "1")
        import ray
        import ray.data
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # they do not find this file
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
        ray.data.DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        yield ray
        ray.shutdown()


class Net(nn.Module):
    "Calls `relu` twice, and returns numbers of several dtypes."
    def __init__(self):
        super().__init__()
        self.a, self.bn, self.relu = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU()
        self.b, self.kinds = nn.Linear(8, 3), Kinds()

    def forward(self, x): return self.kinds(self.b(self.relu(self.relu(self.bn(self.a(x))) - 1)))


class Kinds(nn.Module):
    def forward(self, x): return {"half": x.half(), "whole": x.long(), "sign": x > 0, "rounded": x.bfloat16()}


NAMES = ["a", "relu", "b", "kinds"]
DTYPES = {"a": "float32", "relu": "float32", "relu#1": "float32", "b": "float32", "kinds:half": "float16",
          "kinds:whole": "int64", "kinds:sign": "bool", "kinds:rounded": "float32"}


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    net = Net()
    net(torch.randn(50, 6))  # batch statistics to tell train from eval mode by
    return net


@pytest.fixture(scope="module")
def x(): return torch.randn(N, 6, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def ds(ray, x):
    "Rows in blocks that are no multiples of a batch."
    return ray.data.from_items([{"x": row.numpy(), "id": i, "name": f"no. {i}"} for i, row in enumerate(x)],
                               override_num_blocks=7)


@pytest.fixture(scope="module")
def table(ds, net):
    "Two workers on two CPUs, which leave one to whoever brings them the data."
    made = map_features(ds, net, NAMES, "x", keep=["id", "name"], batch_size=SIZE, workers=2)
    assert made.context.execution_options.preserve_order
    return made.materialize()


@pytest.fixture(scope="module")
def direct(net, x, tmp_path_factory):
    "What extract writes."
    loader = DataLoader(TensorDataset(x), batch_size=SIZE)
    return extract(net, loader, NAMES, tmp_path_factory.mktemp("direct"), shard_size=64, progress=False)


# The numbers of one process

def test_the_numbers_of_extract_in_order(table, direct):
    columns = table.take_batch(N)
    assert columns.pop("id").tolist() == list(range(N))
    assert columns.pop("name").tolist() == [f"no. {i}" for i in range(N)]
    assert {name: values.dtype.name for name, values in columns.items()} == DTYPES
    for name in DTYPES:
        right = load_features(direct, name)[:]
        assert torch.equal(torch.tensor(columns[name]).to(right.dtype), right), name


def test_parquet(ray, table, direct, tmp_path):
    table.write_parquet(str(tmp_path), min_rows_per_file=100)
    assert 1 < len(list(tmp_path.glob("*.parquet"))) <= 3
    rows = ray.data.read_parquet(str(tmp_path)).sort("id").take_batch(N)
    assert rows["id"].tolist() == list(range(N))
    assert {name: rows[name].dtype.name for name in DTYPES} == DTYPES
    assert all(np.array_equal(rows[name], load_features(direct, name)[:].float().numpy()) for name in ("relu#1", "b"))


@pytest.mark.parametrize("samples", ["id", None])
def test_files_of_extract(table, direct, tmp_path, samples):
    folder = write_features(table.drop_columns(["name"]), tmp_path/"made"/"here", samples=samples, shard_size=64)
    assert folder == tmp_path/"made"/"here"
    there, here = (json.loads((path/"index.json").read_text())["shards"] for path in (direct, folder))
    assert there == here and not list(folder.glob(".*"))
    for name in DTYPES:
        mine, right = load_features(folder, name), load_features(direct, name)
        assert torch.equal(mine[:].to(right[:].dtype), right[:]) and mine.samples == right.samples == list(range(N))
        assert mine[:].dtype == right[:].dtype or name == "kinds:rounded"
    if not samples: assert load_features(folder, "id")[:].tolist() == list(range(N))


def test_bfloat16_again(table, direct, tmp_path):
    folder = write_features(table.select_columns(["kinds:rounded"]), tmp_path/"new", dtype=torch.bfloat16)
    mine, right = load_features(folder, "kinds:rounded")[:], load_features(direct, "kinds:rounded")[:]
    assert mine.dtype == right.dtype == torch.bfloat16 and torch.equal(mine, right)


def test_the_model_may_be_built_there(ds, direct):
    "A function is called by each worker, and random weights are the same in all."
    def build(): return nn.Sequential(nn.Linear(6, 2))
    made = map_features(ds, build, {"0": "out"}, "x", keep="id", batch_size=SIZE, workers=2)
    values = made.take_batch(N)
    torch.manual_seed(0)
    with torch.no_grad(): right = build()(torch.tensor(np.stack([row["x"] for row in ds.take_all()])))
    assert np.allclose(values["out"], right.numpy(), atol=1e-6)


# A worker that dies

class Slow(nn.Module):
    "Takes its time, and writes down who computed which batch."
    def __init__(self, log, first_is_slow=False):
        super().__init__()
        self.log, self.first_is_slow, self.out = log, first_is_slow, nn.Identity()

    def forward(self, x):
        first = int(x[0, 0])
        with open(self.log, "a") as f: f.write(f"{os.getpid()} {first}\n")
        time.sleep(3 if self.first_is_slow and first == 0 else .15)
        return self.out(x*2)


def read(log): return [tuple(map(int, line.split())) for line in log.read_text().splitlines()] if log.exists() else []


def numbered(ray, n=400):
    return ray.data.from_items([{"x": np.float32([i]), "id": i} for i in range(n)], override_num_blocks=5)


def test_a_worker_that_is_killed(ray, tmp_path):
    "Ray starts another one, computes the lost batches again, and no row is lost or there twice."
    log, killed = tmp_path/"log", []
    features = map_features(numbered(ray), Slow(log), {"out": "twice"}, "x", keep="id", batch_size=10, workers=2)

    def kill():
        deadline = time.time() + 120
        while len(read(log)) < 8 and time.time() < deadline: time.sleep(.01)
        killed.append(read(log)[-1][0])
        os.kill(killed[0], signal.SIGKILL)
    killer = threading.Thread(target=kill)
    killer.start()
    folder = write_features(features, tmp_path/"files", samples="id", shard_size=50)
    killer.join()

    stored = load_features(folder, "twice")
    assert stored.samples == list(range(400)) and stored[:].flatten().tolist() == [2*i for i in range(400)]
    seen = read(log)
    at = max(i for i, (pid, _) in enumerate(seen) if pid == killed[0])
    assert len({pid for pid, _ in seen}) == 3  # two began, one died, and another one took its place
    assert 8 <= at + 1 < len(seen)  # in the middle
    times = Counter(first for _, first in seen)
    assert set(times) == set(range(0, 400, 10)) and max(times.values()) > 1  # what it was doing was done again


def test_an_order_of_ones_own(ray, tmp_path):
    "Unordered, a slow batch waits for nobody; the numbers of the samples put the files in order."
    log = tmp_path/"log"
    features = map_features(numbered(ray, 100), Slow(log, first_is_slow=True), {"out": "twice"}, "x", keep="id",
                            batch_size=10, workers=2, ordered=False)
    assert not features.context.execution_options.preserve_order
    folder = write_features(features, tmp_path/"files", samples="id", shard_size=10)
    files = [shard["file"] for shard in json.loads((folder/"index.json").read_text())["shards"]]
    assert sorted(files) != files  # the first batch was not the first to be written
    stored = load_features(folder, "twice")
    assert stored.samples == list(range(100)) and stored[:].flatten().tolist() == [2*i for i in range(100)]


# What is wrong

class Locked(nn.Module):
    "A lock cannot be pickled."
    def __init__(self):
        super().__init__()
        self.layer, self.lock = nn.Linear(6, 2), threading.Lock()

    def forward(self, x): return self.layer(x)


@pytest.mark.parametrize("kind, text, change", [
    (LookupError, "no column 'y'; there is 'x', 'id', 'name'", {"inputs": "y"}),
    (LookupError, "no column 'ids'; there is 'id'", {"keep": "ids"}),
    (LookupError, "no layer of this Net matches 'c'", {"names": "c"}),
    (TypeError, r"this Locked cannot be sent to workers \(TypeError: .*lock.*\): pass a function that builds it",
     {"model": Locked(), "names": "layer"}),
    (TypeError, "expected a torch.nn.Module, got str", {"model": "net"}),
    (TypeError, "expected a Ray data set, got list; functions such as ray.data.read_parquet", {"ds": []}),
    (ValueError, "batch_size=0", {"batch_size": 0}),
    (ValueError, "workers=0", {"workers": 0}),
], ids=range(8))
def test_what_is_refused_before_anything_runs(ds, net, kind, text, change):
    with pytest.raises(kind, match=text):
        map_features(**{"ds": ds, "model": net, "names": "b", "inputs": "x", **change})


def test_an_empty_data_set(ray, net, ds, tmp_path):
    with pytest.raises(ValueError, match="the data set is empty"): map_features(ray.data.from_items([]), net, "b", "x")
    nothing = ds.filter(lambda row: False).materialize()
    with pytest.raises(ValueError, match="the data set is empty: nothing was written"):
        write_features(nothing, tmp_path/"none")
    assert not (tmp_path/"none"/"index.json").exists()


def said(work):
    "What Ray says when a worker fails: the error itself is a part of it."
    with pytest.raises(Exception) as e: work()
    return str(e.value)


def test_errors_of_workers_are_told(ds):
    bad = map_features(ds, nn.Sequential(nn.Linear(5, 2)), "0", "x", batch_size=SIZE)
    text = said(bad.take_all)
    assert "mat1 and mat2 shapes cannot be multiplied" in text
    assert "raised for a batch of 16 rows; the model got 16×6 torch.float32" in text
    there = map_features(ds, lambda: nn.Sequential(nn.Linear(6, 2)), "7", "x")
    assert "no layer of this Sequential matches '7'" in said(there.take_all)


def test_folders_are_not_mixed(table, tmp_path):
    few = table.select_columns(["b"]).limit(32).materialize()
    write_features(few, tmp_path/"one")
    before = {path.name: path.read_bytes() for path in (tmp_path/"one").iterdir()}
    with pytest.raises(ValueError, match="delete it, or choose another folder"): write_features(few, tmp_path/"one")
    assert {path.name: path.read_bytes() for path in (tmp_path/"one").iterdir()} == before
    (tmp_path/"one"/"index.json").unlink()  # as a run leaves it that did not end
    with pytest.raises(ValueError, match="leftovers of an unfinished run"): write_features(few, tmp_path/"one")
    with pytest.raises(FileNotFoundError, match="has no index.json"): load_features(tmp_path/"one", "b")


def test_machines_must_share_the_disk(table, tmp_path, monkeypatch):
    few = table.select_columns(["b"])
    def write_elsewhere(self, writer):
        write(self, writer)
        (tmp_path/"new"/"features-00001.safetensors").unlink()
    write = type(few).write_datasink
    monkeypatch.setattr(type(few), "write_datasink", write_elsewhere)
    with pytest.raises(RuntimeError, match="1 files of other machines are missing in .*: all must share this disk"):
        write_features(few, tmp_path/"new", shard_size=64)
    assert not (tmp_path/"new"/"index.json").exists()


@pytest.mark.parametrize("text, rows, options", [
    ("no column 'ids'; there is 'id'", [{"x": 1., "id": 0}], {"samples": "ids"}),
    ("column 'name' holds <U1, which can't become a tensor: drop this column first", [{"name": "a", "id": 0}], {}),
    ("samples='x': sample numbers are one integer per row, but this column holds torch.float64", [{"x": 1.}],
     {"samples": "x"}),
    ("samples='id': more than one row has the number 3", [{"x": 1., "id": 3}, {"x": 2., "id": 3}],
     {"samples": "id"}),
    ("have different shapes (2, 3)", [{"x": np.zeros(2)}, {"x": np.zeros(3)}], {}),
    ("shard_size=0: a shard holds at least one row", [{"x": 1.}], {"shard_size": 0}),
], ids=range(6))
def test_what_cannot_be_written(ray, tmp_path, text, rows, options):
    ds = ray.data.from_items(rows, override_num_blocks=1).materialize()
    assert text in said(lambda: write_features(ds, tmp_path/"new", **options))
    assert not (tmp_path/"new"/"index.json").exists()


def test_the_options_of_a_data_set_stay(ds, tmp_path):
    few, options = ds.select_columns(["id"]).materialize(), ds.context.execution_options
    before, options.preserve_order = options.preserve_order, False
    write_features(few, tmp_path/"new")
    assert options.preserve_order is False
    options.preserve_order = before


@pytest.mark.parametrize("there, workers, each", [(2, 1, 1), (2, 2, .5), (4, 3, 1), (4, 4, .75), (1, 1, 0), (0, 2, 1)])
def test_a_cpu_is_left(ray, monkeypatch, there, workers, each):
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": there} if there else {})
    assert cpus_of_a_worker(workers) == each


def test_the_how_to_page(ray, tmp_path, monkeypatch):
    "Its code for Ray is not run with the page, so it runs here."
    page = json.loads((REPO/"nbs"/"howto"/"features-of-a-data-set.ipynb").read_text(encoding="utf-8"))
    texts = ["".join(cell["source"]) for cell in page["cells"]]
    net_code = next(text for text in texts if text.startswith("%%writefile pictures.py")).partition("\n")[2]
    code = next(text for text in texts if "map_features(" in text and "```python" in text)
    code = code.split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    Path("pictures.py").write_text(net_code)
    monkeypatch.syspath_prepend(str(tmp_path))
    import pictures
    ray.cloudpickle.register_pickle_by_value(pictures)
    exec(compile(code.replace("ray.init()", "None"), "the page", "exec"), {})
    loader = DataLoader(pictures.data, batch_size=64)
    alone = extract(pictures.net(), loader, {"5": "pooled"}, tmp_path/"alone", progress=False)
    stored = load_features(tmp_path/"on ray", "pooled")
    assert torch.equal(stored[:], load_features(alone, "pooled")[:]) and stored.samples == list(range(1797))
