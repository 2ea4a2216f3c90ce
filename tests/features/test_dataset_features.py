"""extract: what is on disk is right, complete and never mixed, however often it is interrupted and however many processes write it."""
import json
import multiprocessing
import os
import random
import resource
import signal
import tempfile
import threading
import time

import pytest
import safetensors.torch
import torch
from safetensors.torch import save
from torch import nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)
from tqdm import tqdm

from hooklab.features import dataset as dataset_features
from hooklab.features.dataset import extract, load_features
from hooklab.features.extractor import FeatureExtractor
from hooklab.hooks.attached import hooks_on
from hooklab.hooks.copies import HookWarning
from support.nets import Pair
from support.portions import one_in

torch.set_num_threads(1)
fork = multiprocessing.get_context("fork")


class Net(nn.Module):
    "Calls `relu` twice, has a layer for pairs, and remembers in which mode it ran."
    def __init__(self):
        super().__init__()
        self.a, self.bn, self.relu, self.pair, self.b = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), Pair(), nn.Linear(8, 3)
        self.modes = set()

    def forward(self, x, *, times=1):
        self.modes.add((self.training, torch.is_grad_enabled()))
        x = self.relu(self.bn(self.a(x*times)))
        return self.b(self.relu(self.pair(x)["twice"][0] - 1))


@pytest.fixture
def data(): return TensorDataset(torch.randn(57, 6, generator=torch.Generator().manual_seed(1)), torch.arange(57))


@pytest.fixture
def folder(tmp_path): return tmp_path/"made"/"here"


def run(net, data, folder, names="b", **options):
    batch_size = options.pop("batch_size", 5)
    return extract(net, DataLoader(data, batch_size=batch_size), names, folder, **{"shard_size": 10, "progress": False, **options})


def expected(net, data, key, batch_size=5, **options):
    modes = [m.training for m in net.modules()]
    net.eval()
    with torch.no_grad(): rows = [FeatureExtractor(net, key.split(":")[0], detach=True, **options)(x)[key.split(":")[0]] for x, y in DataLoader(data, batch_size=batch_size)]
    for m, mode in zip(net.modules(), modes): m.training = mode
    return torch.cat(rows)


# What is written and read

def test_same_as_a_direct_run(net, data, folder):
    assert run(net, data, folder, ["a", "relu", "b", ""]) == folder
    for key in ["a", "relu", "relu#1", "b"]:
        stored = load_features(folder, key)
        rows = FeatureExtractor(net.eval(), ["a", "relu"], detach=True)(data[:5][0]) if key == "relu#1" else None
        if rows: assert torch.equal(stored[:5], rows[key])
        else: assert torch.equal(stored[:], expected(net, data, key))
        assert stored.samples == list(range(57)) and len(stored) == 57
    assert torch.equal(load_features(folder, "")[:], load_features(folder, "b")[:])


def test_index_says_which_samples_are_where(net, data, folder):
    run(net, Subset(data, range(40, 57)), folder)
    index = json.loads((folder/"index.json").read_text())
    assert [shard["samples"] for shard in index["shards"]] == [list(range(10)), list(range(10, 17))]
    assert sorted(os.listdir(folder)) == sorted(["index.json", *(shard["file"] for shard in index["shards"])])


def test_order_of_ones_own(net, data, folder):
    order = [30, 2, 56, 7, 8, 9, 1]
    extract(net, DataLoader(data, batch_size=3, sampler=order), "b", folder, shard_size=4, progress=False)
    stored = load_features(folder, "b")
    assert stored.samples == order
    torch.testing.assert_close(stored[:], expected(net, data, "b")[order])


def test_batches_of_different_sizes(net, data, folder):
    batches = [[3], [5, 4, 9], [0, 1], [2]]
    extract(net, DataLoader(data, batch_sampler=batches), "b", folder, shard_size=3, progress=False)
    index = json.loads((folder/"index.json").read_text())
    assert [shard["samples"] for shard in index["shards"]] == [[3, 5, 4, 9], [0, 1, 2]]


def test_reading_rows(net, data, folder):
    run(net, data, folder)
    stored, rows = load_features(folder, "b"), expected(net, data, "b")
    for i in (0, 9, 10, 56, -1, -57): assert torch.equal(stored[i], rows[i])
    for s in (slice(0, 57), slice(8, 23), slice(10, 20), slice(-3, None), slice(5, 50, 7), slice(None, 100), slice(4, 4)): assert torch.equal(stored[s], rows[s])
    assert torch.equal(stored[::-1], rows.flip(0)) and stored[60:].shape == (0, 3)
    for i in (57, -58):
        with pytest.raises(IndexError): stored[i]
    assert torch.equal(torch.cat(list(DataLoader(stored, batch_size=10))), rows)
    assert repr(stored) == "b: 57 rows of 3, torch.float32, in 6 files"


def test_containers(net, data, folder):
    run(net, data, folder, "pair")
    assert load_features(folder, "pair:number")[:].tolist() == [i % 5 for i in range(55)] + [0, 1]
    assert load_features(folder, "pair:twice.0")[:].shape == (57, 8)
    with pytest.raises(LookupError, match="no 'pair' in .*; there is 'pair:"): load_features(folder, "pair")


def test_dtype(net, data, folder):
    run(net, data, folder, ["b", "pair"], dtype=torch.bfloat16)
    assert torch.equal(load_features(folder, "b")[:], expected(net, data, "b").bfloat16())
    assert load_features(folder, "pair:number")[:].dtype == torch.int64


def test_any_memory_format(folder):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3)).to(memory_format=torch.channels_last), torch.randn(12, 3, 8, 8).to(memory_format=torch.channels_last)
    run(model, TensorDataset(x), folder, "0", batch_size=6)
    torch.testing.assert_close(load_features(folder, "0")[:], model(x).detach())


def test_one_number_for_each_sample(data, folder):
    class Sum(nn.Module):
        def forward(self, x): return x.sum(1)
    run(nn.Sequential(Sum()), data, folder, "0")
    torch.testing.assert_close(load_features(folder, "0")[:], data[:][0].sum(1))
    assert "57 rows of one number" in repr(load_features(folder, "0"))


@pytest.mark.parametrize("inputs", [lambda b: b[0]*2, lambda b: (b[0]*2,), lambda b: {"x": b[0], "times": 2}])
def test_inputs(net, data, folder, inputs):
    run(net, data, folder, inputs=inputs)
    assert torch.equal(load_features(folder, "b")[:], expected(net, TensorDataset(data[:][0]*2, data[:][1]), "b"))


@pytest.mark.parametrize("form", [lambda x: x, lambda x: {"x": x}])
def test_batches_of_one_thing(net, data, folder, form):
    class Plain(Dataset):
        def __len__(self): return 57
        def __getitem__(self, i): return form(data[i][0])
    run(net, Plain(), folder)
    assert torch.equal(load_features(folder, "b")[:], expected(net, data, "b"))


def test_workers(net, data, folder):
    extract(net, DataLoader(data, batch_size=5, num_workers=2, prefetch_factor=3, collate_fn=flipped), "b", folder, shard_size=10, progress=False)
    assert torch.equal(load_features(folder, "b")[:], expected(net, TensorDataset(data[:][0].flip(1), data[:][1]), "b"))


def flipped(samples): return torch.stack([x.flip(0) for x, y in samples])


def test_stop(net, data, folder):
    net.b.forward = None  # the end of the pass is never reached
    run(net, data, folder, "a", stop=True)
    assert len(load_features(folder, "a")) == 57


def test_progress_bar(net, data, folder, capsys):
    run(net, data, folder, progress=True)
    assert "57/57" in capsys.readouterr().err
    (folder/"features-00001.safetensors").unlink()
    run(net, data, folder, progress=True)
    assert "47/57" in (shown := capsys.readouterr().err) and "57/57" in shown
    run(net, data, folder)
    assert capsys.readouterr().err == ""


def test_model_is_as_before(net, data, folder):
    net.train()
    net.pair.eval()
    before = {name: t.clone() for name, t in net.state_dict().items()}
    torch.manual_seed(5)
    random_state = torch.get_rng_state()
    run(net, data, folder, ["a", "bn"])
    assert net.modes == {(False, False)} and torch.is_grad_enabled()
    assert net.training and net.bn.training and not net.pair.training and not hooks_on(net)
    assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random_state)


def test_mode_is_restored_after_an_error(net, data, folder):
    with pytest.raises(RuntimeError): run(net, data, folder, inputs=lambda b: b[0][:, :3])
    assert net.training and all(m.training for m in net.modules()) and not hooks_on(net)


def test_modes_are_switched_by_train(data, folder):
    class Merges(nn.Linear):
        "Like layers that fold their adapters in for eval mode, and out for train mode."
        merged = False
        def train(self, mode=True):
            self.merged = not mode
            return super().train(mode)
    model = nn.Sequential(Merges(6, 2))
    run(model, data, folder, "0")
    assert model[0].training and not model[0].merged


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled(net, data, folder):
    torch._dynamo.reset()
    run(torch.compile(net, backend="eager"), data, folder)
    torch.testing.assert_close(load_features(folder, "b")[:], expected(net, data, "b"))
    run(net, data, folder)  # the same model, to go on with


# Loaders without a fixed order

class Endless:
    def __init__(self, numbers): self.numbers = numbers
    def __iter__(self):
        i = 0
        while True:
            yield i if self.numbers == "new" else i % 57
            i += 1


class Shuffles:
    def __iter__(self): return iter(random.sample(range(57), 57))
    def __len__(self): return 57


class Stream(IterableDataset):
    def __iter__(self): return iter(torch.randn(20, 6))


@pytest.mark.parametrize("options, error, text", [
    ({"shuffle": True}, ValueError, r"the loader shuffles \(RandomSampler\)"),
    ({"sampler": torch.utils.data.SubsetRandomSampler(range(9))}, ValueError, "SubsetRandomSampler"),
    ({"sampler": WeightedRandomSampler([1.]*57, 57)}, ValueError, "WeightedRandomSampler"),
    ({"sampler": Shuffles()}, ValueError, "Shuffles returns a different order each time"),
    ({"sampler": Endless("new")}, ValueError, "sample 57 of a dataset of 57"),
    ({"sampler": Endless("same")}, ValueError, "sample 0 twice"),
    ({"sampler": [0, -1]}, ValueError, "sample -1 of a dataset"),
    ({"sampler": []}, ValueError, "the loader is empty"),
    ({"sampler": DistributedSampler(range(57), 2, 0)}, ValueError, "DistributedSampler"),
    ({"batch_size": None}, ValueError, "batch_size=None")])
def test_refuses_loaders(net, data, folder, options, error, text):
    with pytest.raises(error, match=text): extract(net, DataLoader(data, **options), "b", folder)
    assert not folder.exists()


def test_refuses_streams_and_what_is_no_loader(net, data, folder):
    with pytest.raises(ValueError, match="Stream is an IterableDataset"): extract(net, DataLoader(Stream()), "b", folder)
    for other in (data, iter(DataLoader(data)), [data[:5]]):
        with pytest.raises(TypeError, match="extract takes a PyTorch DataLoader, got"): extract(net, other, "b", folder)
    with pytest.raises(TypeError, match="expected a torch.nn.Module, got"): extract(data, DataLoader(data), "b", folder)
    with pytest.raises(ValueError, match="shard_size=0"): run(net, data, folder, shard_size=0)
    with pytest.raises(LookupError, match="no layer of this Net"): run(net, data, folder, "c")
    assert not folder.exists()


# Outputs that cannot be stored by sample

def test_refuses_what_has_no_row_for_each_sample(data, folder):
    lstm = nn.Sequential(nn.Unflatten(1, (2, 3)), nn.LSTM(3, 4, batch_first=True))
    with pytest.raises(ValueError, match=r"1:1\.0 is of shape \(1, 5, 4\) for 5 samples"): run(lstm, data, folder, "1")
    class Mean(nn.Module):
        def forward(self, x): return x.mean()
    with pytest.raises(ValueError, match=r"0 is of shape \(\) for 5 samples"): run(nn.Sequential(Mean()), data, folder/"2", "0")


@pytest.mark.parametrize("interrupted", [False, True])
def test_refuses_rows_of_different_shapes(folder, interrupted):
    class Ragged(Dataset):
        broken = interrupted
        def __len__(self): return 20
        def __getitem__(self, i):
            if self.broken and i == 10: raise OSError("broken")
            return torch.ones(3 if i < 10 else 4)
    data, model = Ragged(), nn.Sequential(nn.ReLU())
    if interrupted:
        with pytest.raises(OSError): run(model, data, folder, "0", batch_size=2)
    data.broken = False
    with pytest.raises(ValueError, match="samples 10 to 11 give .* others gave .* such as by padding"): run(model, data, folder, "0", batch_size=2)
    assert len(list(folder.glob("features-*"))) == 1


def test_layers_that_do_not_run(net, data, folder):
    net.unused = nn.Linear(2, 2)
    with pytest.raises(RuntimeError, match="unused was requested but did not run"): run(net, data, folder, ["b", "unused"])
    # nothing has been written, so a call with other layers may start again
    with pytest.warns(HookWarning, match="unused"): run(net, data, folder, nn.Linear)
    assert len(load_features(folder, "a")) == 57


# Other settings

@pytest.mark.parametrize("change, text", [
    ({"names": "a"}, "layers: b there, a here"), ({"dtype": torch.float16}, "dtype: as they are there, torch.float16 here"), ({"batch_size": 6}, "batch_size: 5 there, 6 here"),
    ({"shard_size": 20}, "shard_size: 10 there, 20 here"), ({"stop": True}, "stop: False there, True here"), ({"inputs": lambda b: b[0] + 1}, "a different first batch")])
def test_refuses_other_settings(net, data, folder, change, text):
    run(net, data, folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ValueError, match=text): run(net, data, folder, **change)
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_refuses_other_weights_data_and_samples(net, data, folder):
    run(net, data, folder)
    with pytest.raises(ValueError, match="different samples"): run(net, Subset(data, range(56)), folder)
    with pytest.raises(ValueError, match="a different first batch"): run(net, TensorDataset(data[:][0]*2, data[:][1]), folder)
    with pytest.raises(ValueError, match="model: Net there, Sequential here"): run(nn.Sequential(net), data, folder, "0.b")
    net.bn.running_mean += 1
    with pytest.raises(ValueError, match="different weights"): run(net, data, folder)


def test_refuses_shards_of_nobody_knows_what(net, data, folder):
    run(net, data, folder)
    (folder/"index.json").unlink()
    with pytest.raises(ValueError, match="shards, but no index.json"): run(net, data, folder)
    with pytest.raises(FileNotFoundError, match="no index.json"): load_features(folder, "b")


def test_all_kinds_of_weights(data, folder):
    model = nn.Sequential(nn.Linear(6, 2))
    for name, t in {"complex": torch.ones(2, dtype=torch.complex64), "flag": torch.tensor(True), "bf16": torch.ones(3, 2).bfloat16().T, "none": torch.empty(0)}.items():
        model.register_buffer(name, t)
    run(model, data, folder, "0")
    model.flag.logical_not_()
    with pytest.raises(ValueError, match="different weights"): run(model, data, folder, "0")


# Interrupted

class Logged(Dataset):
    "Writes down which samples were read, and takes its time."
    def __init__(self, data, log, pause=0.): self.data, self.log, self.pause = data, log, pause
    def __len__(self): return len(self.data)

    def __getitem__(self, i):
        time.sleep(self.pause)
        with open(self.log, "a") as f: f.write(f"{i}\n")
        return self.data[i]


def in_a_process(f):
    "Run `f` in a copy of this process; give the process, and where its error will be."
    mine, yours = fork.Pipe()
    def call():
        tqdm.set_lock(threading.RLock())  # the usual one is shared with this process, which would wait for it when the copy is killed
        try: f()
        except BaseException as e: yours.send(f"{type(e).__name__}: {e}")
        else: yours.send(None)
    process = fork.Process(target=call)
    process.start()
    return process, mine


def check(net, data, folder):
    "Nothing is lost, nothing is there twice, nothing is left over."
    stored = load_features(folder, "b")
    assert stored.samples == list(range(len(data))) and torch.equal(stored[:], expected(net, data, "b"))
    assert sum(path.name != "index.json" for path in folder.iterdir()) == len(stored.files)


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_moments(net, data, folder, tmp_path, seed):
    "The moments are counted in samples read, so that a slow machine gets as far as a quick one."
    rng, log, kills = random.Random(seed), tmp_path/"log", 0
    log.touch()
    while True:
        process, _ = in_a_process(lambda: run(net, Logged(data, log, pause=.003), folder))
        until = len(log.read_text().split()) + rng.randrange(30)
        while process.is_alive() and len(log.read_text().split()) < until: time.sleep(.001)
        process.join(timeout=rng.random()*.01)
        if process.exitcode == 0: break
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        kills += process.exitcode == -signal.SIGKILL
        assert process.exitcode in (0, -signal.SIGKILL) and kills < 500
    assert kills > 1
    check(net, data, folder)


def there(folder): return {path: path.read_bytes() for path in folder.glob("*")}


@pytest.mark.parametrize("owner, step", [(dataset_features.Path, "mkdir"), (safetensors.torch, "save"), (os, "fsync"), (os, "replace")])
@pytest.mark.parametrize("when", one_in(3, ["half way", "before", "after"]))
def test_killed_at_each_step(net, data, folder, tmp_path, monkeypatch, owner, step, when):
    "The same, where it hurts: at each thing that is done to the disk, again and again."
    real, log = getattr(owner, step), Logged(data, tmp_path/"log")
    def deadly(*args, **kwargs):
        if when == "before": os.kill(os.getpid(), signal.SIGKILL)
        done = real(*args, **kwargs)
        if when == "half way" and step == "fsync": os.ftruncate(args[0], os.fstat(args[0]).st_size//2)
        if when == "after" or step == "fsync" or len(list(folder.glob("*"))) % 2: os.kill(os.getpid(), signal.SIGKILL)
        return done
    with monkeypatch.context() as patched:
        patched.setattr(owner, step, deadly)
        for _ in range(10):
            before = there(folder)
            process, _ = in_a_process(lambda: run(net, log, folder))
            process.join()
            assert process.exitcode in (0, -signal.SIGKILL)
            if there(folder) == before: break  # so the next time would be the same
    run(net, log, folder)
    check(net, data, folder)


def test_what_is_done_is_not_done_again(net, data, folder, tmp_path):
    log = tmp_path/"log"
    run(net, Logged(data, log), folder)
    for i in (1, 4): (folder/f"features-{i:05}.safetensors").unlink()
    log.unlink()
    run(net, Logged(data, log), folder)
    read = sorted(map(int, log.read_text().split()))
    assert read == sorted([*range(5), *range(10, 20), *range(40, 50)])  # the first batch is compared
    check(net, data, folder)
    log.unlink()
    run(net, Logged(data, log), folder)
    assert len(log.read_text().split()) == 5


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_errors_on_the_way(net, data, folder, error):
    class Breaks(TensorDataset):
        at = 33
        def __getitem__(self, i):
            if i == self.at: raise error("broken")
            return super().__getitem__(i)
    breaks = Breaks(*data.tensors)
    with pytest.raises(error, match="broken"): run(net, breaks, folder)
    assert len(list(folder.glob("features-*"))) == 3
    with pytest.raises(FileNotFoundError, match="3 of 6 shards are missing in .*: call extract again"): load_features(folder, "b")
    breaks.at = -1
    run(net, breaks, folder)
    check(net, data, folder)


# Shards that are not what extract wrote

def broken(folder, how, i=1):
    "Damage one shard; what it was is returned."
    path = folder/f"features-{i:05}.safetensors"
    content = path.read_bytes()
    damaged = {"empty": b"", "7 bytes": content[:7], "9 bytes": content[:9], "half of the header": content[:40], "half": content[:len(content)//2],
               "one byte too few": content[:-1], "one too many": content + b"x", "zeros": bytes(len(content)), "text": b"I am a text, and no shard",
               "picture": b"\x89PNG\r\n\x1a\n" + bytes(100), "other keys": save({"c": torch.ones(10, 3)}), "other dtype": save({"b": torch.ones(10, 3).half()}),
               "other rows": save({"b": torch.ones(3, 3)}), "a number": save({"b": torch.tensor(1.)}), "no tensors": save({})}
    path.write_bytes(damaged[how])
    return content


cut_off = "empty", "7 bytes", "9 bytes", "half of the header", "half", "one byte too few", "one too many", "zeros"
foreign = "text", "picture", "other keys", "other dtype", "other rows", "a number", "no tensors"


@pytest.mark.parametrize("how", [*cut_off, *foreign])
def test_a_broken_shard_is_named_by_who_reads_it(net, data, folder, how):
    run(net, data, folder)
    broken(folder, how)
    with pytest.raises(ValueError, match=r"here/features-00001\.safetensors (was cut off|is no shard|holds).*call extract again") as error:
        load_features(folder, "b")
    assert "\n" not in str(error.value) and ("cut off" in str(error.value)) == (how in cut_off)


@pytest.mark.parametrize("how", cut_off)
def test_a_shard_that_was_cut_off_is_written_again(net, data, folder, tmp_path, how):
    log = tmp_path/"log"
    run(net, Logged(data, log), folder)
    before = broken(folder, how)
    log.unlink()
    with pytest.warns(UserWarning, match=r"^features-00001\.safetensors in .*: cut off, .*written again"): run(net, Logged(data, log), folder)
    assert (folder/"features-00001.safetensors").read_bytes() == before
    assert sorted(map(int, log.read_text().split())) == sorted([*range(5), *range(10, 20)])  # and no other; the first batch is compared
    check(net, data, folder)


@pytest.mark.parametrize("how", cut_off)
def test_a_first_or_only_shard_that_was_cut_off(net, data, folder, how):
    for shard_size in 10, 100:
        run(net, data, folder/str(shard_size), shard_size=shard_size)
        before = broken(folder/str(shard_size), how, 0)
        with pytest.warns(UserWarning, match="features-00000"): run(net, data, folder/str(shard_size), shard_size=shard_size)
        assert (folder/str(shard_size)/"features-00000.safetensors").read_bytes() == before


@pytest.mark.parametrize("how", foreign)
def test_what_is_not_from_extract_is_left_alone(net, data, folder, how):
    run(net, data, folder)
    broken(folder, how)
    (folder/"features-00004.safetensors").unlink()
    there = (folder/"features-00001.safetensors").read_bytes()
    with pytest.raises(ValueError, match=r"features-00001\.safetensors (is no shard|holds).*delete it, and call extract again"): run(net, data, folder)
    assert (folder/"features-00001.safetensors").read_bytes() == there and not (folder/"features-00004.safetensors").exists()
    (folder/"features-00001.safetensors").unlink()  # as the message says
    run(net, data, folder)
    check(net, data, folder)


def test_an_interrupted_run_with_a_shard_that_was_cut_off(net, data, folder):
    run(net, data, folder)
    broken(folder, "half")
    (folder/"features-00004.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"1 of 6 shards are missing in .*features-00004\.safetensors.*: call extract again"): load_features(folder, "b")
    with pytest.warns(UserWarning, match="features-00001"): run(net, data, folder)
    check(net, data, folder)


def test_a_shard_that_breaks_while_it_is_read(net, data, folder):
    run(net, data, folder)
    stored = load_features(folder, "b")
    broken(folder, "half")
    assert len(stored[:10]) == 10
    with pytest.raises(ValueError, match=r"features-00001\.safetensors was cut off"): stored[10:12]


@pytest.mark.parametrize("content, text", [("", "cannot be read"), ('{"shards": [', "cannot be read"), ("[1, 2]", "not written by extract"),
                                           ("{}", "not written by extract"), ("\0"*50, "cannot be read"), (b"\xff\xfe\0", "cannot be read")])
def test_a_broken_index(net, data, folder, content, text):
    run(net, data, folder)
    (folder/"index.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    for f in lambda: load_features(folder, "b"), lambda: run(net, data, folder):
        with pytest.raises(ValueError, match=rf"here/index\.json (was )?{text}"): f()


def test_new_names(net, data, folder):
    run(net, data, folder, {"b": "head", "relu": "act"})
    assert torch.equal(load_features(folder, "head")[:], expected(net, data, "b"))
    assert len(load_features(folder, "act#1")) == 57
    with pytest.raises(LookupError, match="'head'"): load_features(folder, "b")
    with pytest.raises(ValueError, match="different settings: layers: b as head"): run(net, data, folder, {"b": "tail", "relu": "act"})


def test_full_disk(net, data, folder):
    "No file may grow: what a full disk looks like to a program."
    run(net, data, folder, shard_size=30)
    (folder/"features-00001.safetensors").unlink()
    def full():
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))
        run(net, data, folder, shard_size=30)
    process, told = in_a_process(full)
    process.join()
    assert "could not write" in (text := told.recv()) and "File too large" in text and "call extract again to continue" in text
    assert sorted(os.listdir(folder)) == ["features-00000.safetensors", "index.json"]
    run(net, data, folder, shard_size=30)
    check(net, data, folder)


def test_closed_folder(net, data, folder, tmp_path):
    run(net, data, folder)
    (folder/"features-00001.safetensors").unlink()
    folder.chmod(0o555)
    def without_rights():
        if os.getuid() == 0: os.setuid(65534)  # root may write everywhere
        run(net, data, folder)
    for parent in folder.parents:  # pytest's own folders are closed to others
        if parent.is_relative_to(f"{tempfile.gettempdir()}/"): parent.chmod(parent.stat().st_mode | 0o055)
    process, told = in_a_process(without_rights)
    process.join()
    folder.chmod(0o755)
    assert "could not write" in (text := told.recv()) and "Permission denied" in text
    run(net, data, folder)
    check(net, data, folder)


def test_folder_that_cannot_be_made(net, data, tmp_path):
    (tmp_path/"file").write_text("")
    for path in (tmp_path/"file", tmp_path/"file"/"below"):
        with pytest.raises(OSError, match="could not make the folder"): run(net, data, path)


def test_folder_that_goes_away(net, data, folder):
    class Removes(TensorDataset):
        def __getitem__(self, i):
            if i == 20:
                for path in folder.iterdir(): path.unlink()
                folder.rmdir()
            return super().__getitem__(i)
    with pytest.raises(OSError, match="could not write"): run(net, Removes(*data.tensors), folder)


@pytest.mark.gpu
def test_on_a_gpu(net, data, folder):
    run(net.cuda(), data, folder, ["a", "b"])
    stored = load_features(folder, "b")[:]
    assert not stored.is_cuda
    torch.testing.assert_close(stored, expected(net.cpu(), data, "b"), rtol=1e-3, atol=1e-4)
