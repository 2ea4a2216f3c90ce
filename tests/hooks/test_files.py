"Files of tensors: whole or not at all, of any dtype, one tensor at a time in memory, and errors that name the file."
import errno
import fcntl
import itertools
import json
import multiprocessing
import os
import random as random_module
import resource
import signal
import threading
import time
import weakref

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save

from hooklab.hooks import tensor_files
from hooklab.hooks.files import remove_unfinished, whole_file, write_file
from hooklab.hooks.tensor_files import (
    CutOff,
    bytes_of,
    facts_in,
    name_in_files,
    open_tensors,
    tensors_hash,
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
    assert error.value.strerror == f"{said}. Make the folder first"


def failing(number): return lambda *_: (_ for _ in ()).throw(OSError(number, os.strerror(number)))


@pytest.mark.parametrize("number, advice", [
    (errno.ENOSPC, "Make room on the disk"), (errno.EDQUOT, "Make room on the disk"), (errno.EACCES, "Choose a place"),
    (errno.EROFS, "Choose a place"), (errno.EIO, None)])
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_each_error_names_the_file(tmp_path, monkeypatch, number, advice, step):
    write_file(tmp_path/"file", b"old")
    monkeypatch.setattr(os, step, failing(number))
    with pytest.raises(OSError) as error: write_file(tmp_path/"file", b"new")
    monkeypatch.undo()
    said = f"could not write {tmp_path/'file'} ({os.strerror(number)})"
    assert error.value.errno == number and error.value.strerror.startswith(said)
    assert advice is None or error.value.strerror[len(said):].startswith(f". {advice}")
    assert (tmp_path/"file").read_bytes() == b"old" and os.listdir(tmp_path) == ["file"]


def test_a_folder_a_file_as_a_folder_and_a_long_name(tmp_path):
    (tmp_path/"folder").mkdir()
    write_file(tmp_path/"file", b"old")
    for path, error, advice in [("folder", IsADirectoryError, "Give the name of a file"),
                                ("file/below", NotADirectoryError, "Choose another folder"),
                                ("n"*300, OSError, "Choose a shorter name")]:
        with pytest.raises(error, match=f"could not write {tmp_path/path} .*. {advice}"):
            write_file(tmp_path/path, b"new")
    for n in 200, 201, 255: write_file(tmp_path/("n"*n), b"as long as a name may be")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", *("n"*n for n in (200, 201, 255))]


# what users expect of a file that is written again

def test_what_a_new_file_keeps(tmp_path):
    (tmp_path/"elsewhere").mkdir()
    for there in tmp_path/"file", tmp_path/"elsewhere"/"file":
        (link := tmp_path/"link").symlink_to(there)
        write_file(link, b"old")
        there.chmod(0o600)
        write_file(link, b"new")
        assert link.is_symlink() and there.read_bytes() == b"new" and there.stat().st_mode & 0o777 == 0o600
        link.unlink()
    before = os.umask(0o027)
    try: write_file(tmp_path/"other", b"")
    finally: os.umask(before)
    assert (tmp_path/"other").stat().st_mode & 0o777 == 0o640


def test_a_device_and_a_pipe_are_written_to(tmp_path):
    write_file("/dev/null", b"new")
    with pytest.raises(OSError, match="could not write /dev/full .No space left on device.. Make room"):
        write_file("/dev/full", b"new")
    os.mkfifo(tmp_path/"pipe")
    process = fork.Process(target=write_file, args=(tmp_path/"pipe", b"new"))
    process.start()
    assert (tmp_path/"pipe").read_bytes() == b"new" and (tmp_path/"pipe").is_fifo()
    process.join()


def test_a_file_that_is_protected_stays(tmp_path, monkeypatch):
    write_file(tmp_path/"file", b"old")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(PermissionError, match="could not write .*file .Permission denied"):
        write_file(tmp_path/"file", b"new")
    assert (tmp_path/"file").read_bytes() == b"old"


# several writers, and those that were killed

def left_by(folder, *names): return sorted(name for name in os.listdir(folder) if name not in names)


def test_what_killed_writers_leave_is_gone_after_the_next_write(tmp_path, monkeypatch):
    "But not what belongs to a writer that lives, or to another file, or to somebody else."
    def killed(name):
        os.fsync = lambda f: os.kill(os.getpid(), signal.SIGKILL)
        write_file(tmp_path/name, b"new")
    for name in ["file", "file", "other", "n"*255]:
        process = fork.Process(target=killed, args=(name,))
        process.start()
        process.join()
    (tmp_path/".file.1234.unfinished").write_bytes(b"of an earlier version")
    (tmp_path/".file.mine.unfinished").write_bytes(b"of somebody else")
    os.mkfifo(tmp_path/".file.1-1.unfinished")
    assert len(left_by(tmp_path)) == 6  # the second has removed what the first has left
    with whole_file(tmp_path/"file") as f:
        living, = [name for name in left_by(tmp_path) if f".file.{os.getpid()}-" in name]
        assert len(left_by(tmp_path)) == 4 + 1
        write_file(tmp_path/"file", b"by another at the same time")
        remove_unfinished(tmp_path)
        assert left_by(tmp_path, "file") == sorted([living, ".file.1-1.unfinished", ".file.mine.unfinished"])
        f.write(b"whole")
    assert (tmp_path/"file").read_bytes() == b"whole"
    assert left_by(tmp_path, "file") == [".file.1-1.unfinished", ".file.mine.unfinished"]


def test_what_is_removed_before_it_is_locked_is_begun_again(tmp_path, monkeypatch):
    flock, removed = fcntl.flock, []
    def slow(f, how):
        if not removed and not how & fcntl.LOCK_NB: removed.append(next(tmp_path.glob(".*")).unlink())
        flock(f, how)
    monkeypatch.setattr(fcntl, "flock", slow)
    write_file(tmp_path/"file", b"new")
    assert removed and (tmp_path/"file").read_bytes() == b"new" and os.listdir(tmp_path) == ["file"]


def test_a_disk_without_locks(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", failing(errno.ENOTSUP))
    (tmp_path/".file.1-1.unfinished").write_bytes(b"maybe of a living writer")
    write_file(tmp_path/"file", b"new")
    assert (tmp_path/"file").read_bytes() == b"new" and left_by(tmp_path, "file") == [".file.1-1.unfinished"]


def writes_forever(path, letter):
    for n in itertools.count(): write_file(path, letter*(1 + n % 7)*100_000)


def test_two_writers_at_once(tmp_path):
    "Threads and processes: what is read is always the whole of what one of them has written."
    path = tmp_path/"file"
    write_file(path, b"a"*100_000)
    def write(letter):
        for n in range(1, 20): write_file(path, letter*n*50_000)
    writers = [fork.Process(target=write, args=(letter,)) for letter in (b"a", b"b")]
    for writer in writers: writer.start()
    threads = [threading.Thread(target=write, args=(letter,)) for letter in (b"c", b"d")]
    for thread in threads: thread.start()
    for _ in range(100):
        content = path.read_bytes()
        assert len({*content}) == 1 and len(content) % 50_000 == 0
    for writer in [*writers, *threads]: writer.join()
    assert {writer.exitcode for writer in writers} == {0} and os.listdir(tmp_path) == ["file"]


def kills(path, n, seed=0):
    "Kills a writer so often, at random moments; gives how often the file was not whole."
    drawn, broken = random_module.Random(seed), 0
    write_file(path, b"a"*100_000)
    for _ in range(n):
        process = fork.Process(target=writes_forever, args=(path, b"a"))
        process.start()
        time.sleep(drawn.random()*.05)
        process.kill()
        process.join()
        broken += len(content := path.read_bytes()) % 100_000 != 0 or {*content} != {ord("a")}
    return broken


@pytest.mark.slow
def test_killed_at_any_moment(tmp_path):
    assert kills(tmp_path/"file", 15) == 0
    write_file(tmp_path/"file", b"a")
    assert os.listdir(tmp_path) == ["file"]


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


def test_a_file_that_is_replaced_while_it_is_opened(tmp_path, monkeypatch):
    "Header and numbers are those of one file, though `safe_open` opens it twice."
    def written(name, x):
        tensor_files.write_tensors(tmp_path/name, {"x": (x.dtype, x.shape)}, lambda _: x)
        return tmp_path/name
    path, newer = written("run.safetensors", torch.zeros(3)), written("newer.safetensors", torch.ones(5))
    opened = []
    def slowly(path, framework):
        f = safe_open(path, framework)
        if not opened: os.replace(newer, path)
        opened.append(path)
        return f
    monkeypatch.setattr(tensor_files, "safe_open", slowly)
    with tensor_files.open_tensors(path) as f: assert f.get_tensor("x").tolist() == [1.]*5
    assert len(opened) == 2
