"A shelf gives back what was put there, within its budget, and leaves nothing behind."
import gc
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from hooklab.debug.comparing.spill import Shelf
from hooklab.hooks.tensor_files import bytes_of, open_tensors, write_tensors

fork = multiprocessing.get_context("fork")
needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads /proc")
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
          torch.float8_e4m3fnuz, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16,
          torch.uint32, torch.uint64, torch.bool, torch.complex64, torch.complex128, torch.complex32]
BUDGETS = {"in memory": 2**20, "in a file": 0}
anywhere = pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)


def random(dtype, *shape):
    "Any bits, so also NaN of all kinds."
    if dtype == torch.bool: return torch.rand(shape) > .5
    return torch.randint(0, 256, (*shape, dtype.itemsize), dtype=torch.uint8).view(dtype).reshape(shape)


def same(a, b):
    "Alike to the last bit, and with the strides of a clone."
    return a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.clone().stride() and bytes_of(a) == bytes_of(b)


def open_spills(folder):
    "The files in a folder that this process has open, also those without a name."
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try: links.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError: continue  # closed meanwhile
    return [link for link in links if link.startswith(str(folder))]


# what comes back

@anywhere
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_each_dtype_comes_back_bit_for_bit(dtype, budget):
    tensors = [random(dtype, 3, 5), random(dtype), random(dtype, 0, 4), random(dtype, 4, 3).T, random(dtype, 9)[1::3]]
    with Shelf(budget) as shelf:
        keys = [shelf.put(t) for t in tensors]
        assert all(same(shelf.get(key), t) for key, t in zip(keys, tensors))
        assert [shelf.form(key) for key in keys] == [(dtype, tuple(t.shape)) for t in tensors]


SHAPES = {
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "channels last in 3d": lambda: torch.randn(2, 3, 4, 5, 2).to(memory_format=torch.channels_last_3d),
    "permuted": lambda: torch.randn(2, 3, 4).permute(2, 0, 1), "expanded": lambda: torch.randn(3, 1).expand(3, 4),
    "with gaps": lambda: torch.randn(4, 6)[::2, 1:4], "one column": lambda: torch.randn(4, 6)[:, :1],
    "overlapping": lambda: torch.randn(9).unfold(0, 4, 2),
    "odd strides of size 1": lambda: torch.randn(6).as_strided((2, 1, 3), (3, 77, 1)),
    "conjugate": lambda: torch.randn(3, 2, dtype=torch.complex64).conj(),
    "negative": lambda: torch.randn(3, 2, dtype=torch.complex64).conj().imag,
    "flipped": lambda: torch.randn(3, 4).flip(0), "scalar": lambda: torch.tensor(3.)}


@anywhere
@pytest.mark.parametrize("shape", SHAPES)
def test_strides_are_those_of_a_clone(shape, budget):
    t = SHAPES[shape]()
    with Shelf(budget) as shelf:
        back = shelf.get(shelf.put(t))
        assert torch.equal(back, t) and back.stride() == t.clone().stride()


@anywhere
def test_what_comes_back_is_without_history(budget):
    x = torch.ones(3, requires_grad=True)
    with Shelf(budget) as shelf:
        for t in x, x*2, nn.Parameter(x.detach()):
            back = shelf.get(shelf.put(t))
            assert type(back) is torch.Tensor and not back.requires_grad and torch.equal(back, t)


@anywhere
def test_inference_mode(budget):
    with Shelf(budget) as shelf:
        with torch.inference_mode():
            t = torch.ones(3)
            keys = [shelf.put(t)]
            t.add_(1)
            keys.append(shelf.put(t))  # torch has not counted the change
            inside = [shelf.get(key) for key in keys]
        for got in inside, [shelf.get(key) for key in keys]:
            assert [x[0].item() for x in got] == [1, 2] and not any(x.is_inference() for x in got)


class Named(torch.Tensor): pass


@pytest.mark.filterwarnings("ignore")
def test_other_tensors_stay_in_memory():
    sparse, quantized = torch.eye(3).to_sparse(), torch.quantize_per_tensor(torch.ones(3), .1, 0, torch.qint8)
    others = {"sparse": sparse, "csr": torch.eye(3).to_sparse_csr(), "quantized": quantized,
              "meta": torch.ones(3, device="meta"),
              "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
              "jagged": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
              "subclass": torch.ones(3).as_subclass(Named)}
    with Shelf(0) as shelf:
        keys = {name: shelf.put(t) for name, t in others.items()}
        assert shelf.copies.on_disk == shelf.copies.in_memory == 0
        back = {name: shelf.get(key) for name, key in keys.items()}
        assert all(type(back[name]) is type(t) and back[name].layout == t.layout for name, t in others.items())
        assert torch.equal(back["sparse"].to_dense(), torch.eye(3)) and back["meta"].is_meta
        for key in keys.values(): shelf.drop(key)
        assert len(shelf) == 0


def test_inside_vmap_the_whole_batch_is_kept():
    with Shelf(0) as shelf:
        keys = []
        torch.vmap(lambda row: (keys.append(shelf.put(row)), row)[1])(torch.arange(6.).reshape(2, 3))
        assert torch.equal(shelf.get(keys[0]), torch.arange(6.).reshape(2, 3))


@pytest.mark.gpu
@anywhere
def test_on_a_gpu(budget):
    tensors = [torch.randn(64, 3, 8, 8, device="cuda").to(memory_format=torch.channels_last),
               torch.randn(5, device="cuda").bfloat16(), torch.randn(5), torch.tensor(1, device="cuda")]
    with Shelf(budget) as shelf:
        for t in tensors:
            back = shelf.get(shelf.put(t))
            assert back.device == t.device and torch.equal(back, t) and back.stride() == t.stride()


def test_what_nobody_else_has_is_not_copied():
    t, sliced = torch.ones(1000), torch.eye(4).to_sparse()
    with Shelf(budget=5000) as shelf:
        assert shelf.get(shelf.put(t, is_own=True)) is t and shelf.copies.in_memory == 4000
        assert shelf.get(shelf.put(sliced, is_own=True)) is not sliced  # its bytes are not all there is to know of it
        beyond = shelf.put(torch.full((1000,), 2.), is_own=True)
        assert shelf.copies.on_disk == 4000 and shelf.get(beyond).sum() == 2000


# once for each state of a tensor

@anywhere
def test_a_tensor_that_has_not_changed_is_kept_once(budget):
    t = torch.ones(1000)
    with Shelf(budget) as shelf:
        assert shelf.put(t) == shelf.put(t) != shelf.put(t.clone()) and len(shelf) == 2
        first = shelf.put(t)
        t.mul_(2)
        second = shelf.put(t)
        t[3] = 7
        third = shelf.put(t)
        assert [shelf.get(key)[3].item() for key in (first, second, third)] == [1, 2, 7]


@anywhere
@pytest.mark.parametrize("change", [
    lambda t: t[1:].zero_(), lambda t: t.detach().zero_(), lambda t: nn.functional.relu_(t),
    lambda t: torch.neg(t, out=t), lambda t: setattr(t, "data", torch.zeros(4))])
def test_a_change_by_another_name_is_seen(change, budget):
    t = torch.tensor([-1., -2., -3., -4.])
    with Shelf(budget) as shelf:
        before = shelf.put(t)
        change(t)
        assert torch.equal(shelf.get(shelf.put(t)), t) and shelf.get(before).tolist() == [-1, -2, -3, -4]


def test_the_number_of_a_freed_tensor_is_not_taken_for_another():
    with Shelf(0) as shelf:
        keys = [shelf.put(torch.full((3,), float(i))) for i in range(200)]  # each has the id of the one before
        assert [shelf.get(key)[0].item() for key in keys] == [*range(200)]
        assert not shelf._unchanged.by_id


@anywhere
def test_what_was_put_twice_is_dropped_twice(budget):
    t = torch.ones(1000)
    with Shelf(budget) as shelf:
        key = shelf.put(t)
        assert shelf.put(t) == key
        shelf.drop(key)
        assert torch.equal(shelf.get(key), t)
        shelf.drop(key)
        assert len(shelf) == shelf.copies.in_memory == shelf.copies.on_disk == 0
        for ask in shelf.get, shelf.drop, shelf.form:
            with pytest.raises(KeyError, match="nothing is on the shelf under 0"): ask(key)
        assert shelf.put(t) != key and torch.equal(shelf.get(key + 1), t)  # remembered, but no longer there


# memory

def test_the_budget_is_kept():
    with Shelf(budget=10_000) as shelf:
        keys = []
        for i in range(50):
            keys.append(shelf.put(torch.full((250 + i,), i)))
            held = sum(t.nbytes for t in shelf._kept.values() if isinstance(t, torch.Tensor))
            assert held == shelf.copies.in_memory <= 10_000
        assert shelf.copies.in_memory + shelf.copies.on_disk == sum(8*(250 + i) for i in range(50))
        for key in keys[:4]: shelf.drop(key)
        assert shelf.copies.in_memory < 3000
        new = shelf.put(torch.ones(500))  # there is room in memory again
        assert isinstance(shelf._kept[new], torch.Tensor)
        assert [shelf.get(key)[0].item() for key in keys[4:]] == [*range(4, 50)]


PEAK = """
import sys, torch
from hooklab.debug.comparing.spill import Shelf
def peak(): return next(int(line.split()[1])/1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
def tensor(i): return torch.full((5, 1000, 1000), float(i))
with Shelf(50*10**6) as shelf:
    shelf.put(tensor(0)), shelf.drop(0)
    before = peak()
    keys = [shelf.put(tensor(i)) for i in range(30)]
    assert all(shelf.get(key)[2, 3, 4] == i for i, key in enumerate(keys))
    print(peak() - before, shelf.copies.in_memory/10**6, shelf.copies.on_disk/10**6)
"""


@pytest.mark.slow
@needs_proc
def test_600_megabytes_in_50():
    env = os.environ | {"MALLOC_MMAP_THRESHOLD_": "1000000"}  # what is freed goes back to the system at once
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    more, in_memory, on_disk = map(float, done.stdout.split())
    assert in_memory <= 50 and on_disk == 600 - in_memory and more < 70  # MiB: the budget, and what is on its way


# nothing stays

@needs_proc
@pytest.mark.parametrize("end", ["with", "exception", "close", "forgotten"])
def test_the_file_is_gone_afterwards(end, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shelf = Shelf(0)
    key = shelf.put(torch.ones(10_000))
    assert len(open_spills(tmp_path)) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if end == "with":
            with shelf: pass
        elif end == "exception":
            with pytest.raises(ZeroDivisionError), shelf: 1/0
        elif end == "close":
            shelf.close()
            shelf.close()
        else:
            del shelf
            gc.collect()
    assert not open_spills(tmp_path) and not os.listdir(tmp_path)
    if end != "forgotten":
        for ask in shelf.get, shelf.put, shelf.drop:
            with pytest.raises(ValueError, match="the shelf was closed"):
                ask(torch.ones(1) if ask == shelf.put else key)


@needs_proc
def test_a_killed_process_leaves_no_file(tmp_path):
    def run():
        shelf = Shelf(0, str(tmp_path))
        shelf.put(torch.ones(1000))
        os.kill(os.getpid(), signal.SIGKILL)
    process = fork.Process(target=run)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL and not os.listdir(tmp_path)


@needs_proc
def test_without_need_there_is_no_file(tmp_path):
    with Shelf(10**6, str(tmp_path)) as shelf:
        shelf.put(torch.ones(1000))
        assert not open_spills(tmp_path)


def test_an_empty_file_is_used_again():
    with Shelf(0) as shelf:
        for _ in range(20):
            key = shelf.put(torch.ones(1000))
            shelf.drop(key)
        assert shelf.copies.file.end == 0
        assert torch.equal(shelf.get(shelf.put(torch.arange(5.))), torch.arange(5.))


# the disk says no

def test_full_disk_loses_nothing(tmp_path):
    "No file may grow: what a full disk looks like to a program."
    here, there = fork.Pipe(duplex=False)
    def full():
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
            with Shelf(0, str(tmp_path)) as shelf:
                keys = [shelf.put(torch.full((1000,), float(i))) for i in range(2)]
                try: shelf.put(torch.ones(1000))
                except OSError as e: said = str(e)
                keys.append(shelf.put(torch.full((400,), 2.)))  # there is room for this one
                there.send((said, [shelf.get(key)[-1].item() for key in keys]))
        finally: os._exit(0)
    process = fork.Process(target=full)
    process.start()
    process.join()
    said, read = here.recv()
    assert f"could not write a tensor of 0 MiB to a temporary file in {tmp_path}, where" in said
    assert "(File too large): give another folder, or allow more memory" in said and read == [0, 1, 2]


def test_folder_that_is_not_there(tmp_path):
    with Shelf(0, str(tmp_path/"nowhere")) as shelf, pytest.raises(OSError) as error: shelf.put(torch.ones(10))
    assert "nowhere (No such file or directory): give another folder" in str(error.value)


def test_temporary_folder_that_must_not_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    def refuse(*args, **kwargs): raise PermissionError(13, "Permission denied")
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with Shelf(0) as shelf:
        with pytest.raises(OSError, match=r"MiB are free \(Permission denied\): set TMPDIR to another folder"):
            shelf.put(torch.ones(10))
        assert len(shelf) == 0 and shelf.copies.on_disk == 0


# together with others

def test_threads():
    tensors, wrong = [torch.full((500,), float(i)) for i in range(40)], []
    with Shelf(budget=20_000) as shelf:
        def work(mine):
            for _ in range(30):
                keys = [shelf.put(t) for t in mine]
                wrong.extend(key for key, t in zip(keys, mine) if not torch.equal(shelf.get(key), t))
                for key in keys: shelf.drop(key)
        threads = [threading.Thread(target=work, args=(tensors[i:i + 10],)) for i in range(0, 40, 5)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert not wrong and len(shelf) == shelf.copies.on_disk == shelf.copies.in_memory == 0


def test_a_shelf_is_written_to_one_file(tmp_path):
    layers = {"conv": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last), "flag": torch.tensor(True)}
    with Shelf(0) as shelf:
        keys = {name: shelf.put(t) for name, t in layers.items()}
        forms = {name: shelf.form(key) for name, key in keys.items()}
        write_tensors(tmp_path/"file", forms, lambda name: shelf.get(keys[name]))
    with open_tensors(tmp_path/"file") as f:
        assert all(torch.equal(f.get_tensor(name), t) for name, t in layers.items())


def test_outputs_that_later_layers_overwrite():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 8), nn.Dropout(.5, inplace=True))
    x, keys, kept = torch.randn(3, 4), [], []
    with Shelf(100) as shelf:
        def keep(layer, inputs, output):
            kept.append(output.detach().clone())
            keys.append(shelf.put(output))
        handles = [layer.register_forward_hook(keep) for layer in model]
        model(x)
        for handle in handles: handle.remove()
        assert shelf.copies.on_disk and all(torch.equal(shelf.get(key), t) for key, t in zip(keys, kept))
