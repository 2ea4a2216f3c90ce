"Files of tensors: whole or not at all, of any dtype, one tensor at a time in memory, and errors that name the file."
import errno
import json
import multiprocessing
import os
import resource
import signal
import weakref

import pytest
import torch
from safetensors.torch import load_file, save

from hooklab.hooks.files import (
    CutOff,
    bytes_of,
    facts_in,
    name_in_files,
    open_tensors,
    tensors_hash,
    whole_file,
    write_file,
    write_tensors,
)

fork = multiprocessing.get_context("fork")
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
          torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64,
          torch.bool, torch.complex64]


def random(dtype, *shape):
    "Any bits, so also NaN of all kinds; equality is that of bytes."
    if dtype == torch.bool: return torch.rand(shape) > .5
    numbers = torch.randint(0, 256, (*shape, dtype.itemsize), dtype=torch.uint8)
    return numbers.view(dtype).reshape(shape)


def same(a, b): return a.dtype == b.dtype and a.shape == b.shape and bytes_of(a) == bytes_of(b)


def written(path, tensors, facts=None):
    write_tensors(path, {name: (t.dtype, t.shape) for name, t in tensors.items()}, tensors.get, facts)
    return path


# whole files

def test_a_file_is_there_when_it_is_complete(tmp_path):
    path = tmp_path/"file"
    with whole_file(path) as f:
        f.write(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new" and os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_after_an_error_the_file_before_it_is_still_there(tmp_path, error):
    write_file(tmp_path/"file", b"old")
    with pytest.raises(error), whole_file(tmp_path/"file") as f:
        f.write(b"ne")
        raise error
    assert (tmp_path/"file").read_bytes() == b"old" and os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_killed_process_leaves_no_half_file(tmp_path, monkeypatch, step):
    write_file(tmp_path/"file", b"old")
    monkeypatch.setattr(os, step, lambda *args: os.kill(os.getpid(), signal.SIGKILL))
    process = fork.Process(target=write_file, args=(tmp_path/"file", b"new"))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL and (tmp_path/"file").read_bytes() == b"old"


def test_what_to_do_next_is_said_by_the_caller(tmp_path):
    path = tmp_path/"nowhere"/"file"
    said = f"could not write {path} (No such file or directory)"
    with pytest.raises(OSError) as error: write_file(path, b"", "Make the folder")
    assert error.value.strerror == f"{said}. Make the folder" and error.value.errno == errno.ENOENT
    with pytest.raises(OSError) as error: write_file(path, b"")
    assert error.value.strerror == said


def test_full_disk(tmp_path):
    "No file may grow: what a full disk looks like to a program."
    here, there = fork.Pipe(duplex=False)
    def full():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        try: written(tmp_path/"file", {"a": torch.ones(100), "b": torch.ones(1000)})
        except OSError as e: there.send(str(e))
        finally: os._exit(0)
    process = fork.Process(target=full)
    process.start()
    process.join()
    assert "could not write" in (text := here.recv()) and "File too large" in text and os.listdir(tmp_path) == []


# tensors

@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_come_back_bit_for_bit(tmp_path, dtype):
    tensors = {"a": random(dtype, 3, 5), "scalar": random(dtype), "empty": random(dtype, 0, 4),
               "transposed": random(dtype, 4, 3).T, "part": random(dtype, 9)[1::3],
               "expanded": random(dtype, 1).expand(6)}
    path = written(tmp_path/"file", tensors)
    for read in load_file(path), {name: open_tensors(path).get_tensor(name) for name in tensors}:
        assert read.keys() == tensors.keys() and all(same(read[name], t) for name, t in tensors.items())
    assert facts_in(open_tensors(path)) is None


def test_tensors_of_all_dtypes_in_one_file_are_aligned(tmp_path):
    tensors = {f"{i} {dtype}": random(dtype, i % 4 + 1, 3) for i, dtype in enumerate(DTYPES + DTYPES[::-1])}
    facts = {"order": [*tensors], "text": "größer \"\n", "none": None, "numbers": [1.5]}
    path = written(tmp_path/"file", tensors, facts)
    with open_tensors(path) as f:
        assert facts_in(f) == facts
        for name, t in tensors.items():
            assert same(f.get_tensor(name), t) and f.get_tensor(name).data_ptr() % t.element_size() == 0
            assert same(f.get_slice(name)[:1], t[:1])
    assert all(same(t, tensors[name]) for name, t in load_file(path).items())


def test_the_bytes_are_those_of_safetensors(tmp_path):
    tensors = {"a": random(torch.float32, 3), "b": random(torch.float32, 2, 2), "c": random(torch.uint8, 5)}
    path = tmp_path/"file"
    written(str(path), tensors, "facts")  # a text will do
    theirs = save(tensors, {"hooklab": '"facts"'})
    def taken_apart(content):
        n = 8 + int.from_bytes(content[:8], "little")
        return json.loads(content[8:n]), content[n:]
    assert taken_apart(path.read_bytes()) == taken_apart(theirs)


def test_what_is_unusual_about_a_tensor(tmp_path):
    x = torch.randn(3, 2, dtype=torch.complex64)
    tensors = {"conj": x.conj(), "neg": x.conj().imag, "leaf": torch.ones(2, requires_grad=True),
               "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
               "parameter": torch.nn.Parameter(torch.ones(1))}
    with torch.inference_mode(): tensors["inference"] = torch.ones(2) + 1
    assert tensors["conj"].is_conj() and tensors["neg"].is_neg()
    read = load_file(written(tmp_path/"file", tensors))
    assert all(torch.equal(read[name], t) for name, t in tensors.items())


def test_one_tensor_at_a_time(tmp_path):
    alive, most = [], []
    def fetch(name):
        most.append(sum(ref() is not None for ref in alive))
        t = torch.full((1000,), float(name))
        alive.append(weakref.ref(t))
        return t
    write_tensors(tmp_path/"file", {str(i): (torch.float32, (1000,)) for i in range(20)}, fetch)
    assert max(most) == 0 and load_file(tmp_path/"file")["7"][0] == 7


def test_no_tensor_and_many(tmp_path):
    assert load_file(written(tmp_path/"none", {})) == {}
    many = {f"layer.{i}": torch.tensor(i) for i in range(20000)}
    read = load_file(written(tmp_path/"many", many))
    assert {name: int(t) for name, t in read.items()} == {f"layer.{i}": i for i in range(20000)}


def test_what_a_file_cannot_hold(tmp_path):
    assert name_in_files(torch.complex128) is None and name_in_files(torch.float32) == "F32"
    with pytest.raises(TypeError, match="^x: a safetensors file cannot hold torch.complex128$"):
        written(tmp_path/"file", {"x": torch.ones(2, dtype=torch.complex128)})
    with pytest.raises(ValueError, match=r"^x is torch.float32 \(2,\), and was to be torch.float32 \(3,\)$"):
        write_tensors(tmp_path/"file", {"x": (torch.float32, (3,))}, lambda name: torch.ones(2))
    assert os.listdir(tmp_path) == []


# opening

def test_a_file_that_is_cut_off_at_any_byte(tmp_path):
    whole = written(tmp_path/"file", {"a": torch.ones(3), "b": torch.ones(2)}, {"facts": 1}).read_bytes()
    for n in range(len(whole)):
        (tmp_path/"part").write_bytes(whole[:n])
        with pytest.raises(CutOff, match=r"part was cut off \(.*\): record it again$"):
            open_tensors(tmp_path/"part", if_cut_off="record it again")
    (tmp_path/"part").write_bytes(bytes(len(whole)))
    with pytest.raises(CutOff): open_tensors(tmp_path/"part")


TEXT, PICKLE, ZIP = b"I am a text, and no tensors", b"\x80\x02}q\x00(X\x06\x00\x00\x00", b"PK\x03\x04" + bytes(100)


@pytest.mark.parametrize("content", [TEXT, PICKLE, ZIP])
def test_a_file_of_another_kind(tmp_path, content):
    (tmp_path/"file").write_bytes(content)
    with pytest.raises(ValueError, match=r"file is no record \(.*\): give a record$") as error:
        open_tensors(tmp_path/"file", "record", if_other="give a record")
    assert not isinstance(error.value, CutOff)


def test_no_file_and_a_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"): open_tensors(tmp_path/"nowhere")
    with pytest.raises(IsADirectoryError, match="is a folder, and no record: give a record"):
        open_tensors(tmp_path, "record", if_other="give a record")


# hashes

def test_a_hash_sees_dtype_shape_and_each_bit():
    x = torch.arange(6.)
    different = [x, x.reshape(2, 3), x.reshape(3, 2), x.double(), x + 1e-6, -x, torch.tensor([]), x.view(torch.int32)]
    assert len({tensors_hash([t]) for t in different}) == len(different)
    assert tensors_hash([x]) == tensors_hash([x.clone()]) != tensors_hash([x, x])
    assert tensors_hash([x.reshape(2, 3).T]) == tensors_hash([x.reshape(2, 3).T.contiguous()])
