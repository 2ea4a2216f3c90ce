"""Whatever is in a file, its readers say so in one sentence, soon, and without taking much memory.

`support/hostile.py` makes the files; `python -m tests.bench hostile_files` tries 5,000 of them."""
import os
import re
import signal

import pytest
import torch
from safetensors.torch import save_file

import hooklab as hl
from hooklab.debug.comparing.comparing import compare
from hooklab.features.dataset import load_features
from hooklab.hooks.files import OneOf, in_folder, misfit, read_json
from hooklab.hooks.tensor_files import open_tensors
from support.hostile import KINDS, MOST_SECONDS, WAYS, Case, Originals, bomb, facts_of, outcomes, written
from support.portions import sample, sweep

CASES = [Case(number) for number in range(500)]
ROUND = len(KINDS)*len(WAYS)  # each kind of file, in each way


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    torch.manual_seed(0)
    return Originals(tmp_path_factory.mktemp("originals"))


def check(cases, originals, tmp_path):
    "Each case by one of its readers; a reader that waits for somebody is interrupted."
    def wait_no_longer(*_): raise AssertionError("a reader waits")
    signal.signal(signal.SIGALRM, wait_no_longer)
    wrong, slow = [], []
    for case in cases:
        (folder := tmp_path/str(case)).mkdir()
        signal.alarm(300)
        for found in outcomes(case, originals, folder, some=1):
            if found.problem: wrong.append(f"{found.problem}: {found.name}")
            if found.much: wrong.append(f"{found.grown:.0f} MiB: {found.name}")
            if found.seconds > 10*MOST_SECONDS: slow.append(f"{found.seconds:.0f} s of the processor: {found.name}")
        signal.alarm(0)
    assert not wrong, "\n".join(wrong)
    assert not slow, "\n".join(slow)


def test_some_hostile_files(originals, tmp_path): check(CASES[:ROUND:2], originals, tmp_path)


@sweep
def test_hostile_files(originals, tmp_path): check(sample(1, CASES), originals, tmp_path)


def test_there_are_files_that_are_read_and_files_that_are_refused(originals, tmp_path):
    "Otherwise the tests above would say nothing."
    said = {True: 0, False: 0}
    for case in CASES[:60]:
        (folder := tmp_path/str(case)).mkdir()
        for found in outcomes(case, originals, folder, some=1): said[bool(found.said)] += 1
    assert min(said.values()) > 10


# What a sentence says

def refusal(f, *args):
    with pytest.raises((ValueError, OSError)) as error: f(*args)
    return str(error.value)


def test_a_pickle_is_called_so(tmp_path, originals, capsys):
    from hooklab import cli
    for file, options in [("sd.pt", {}), ("old.pt", {"_use_new_zipfile_serialization": False})]:
        torch.save(originals.net.state_dict(), tmp_path/file, **options)
        with pytest.raises(SystemExit) as ended: cli.main(["diagnose", str(tmp_path/file)])
        said = capsys.readouterr().err
        assert ended.value.code == 2 and re.fullmatch(
            rf"hooklab: ValueError: \S+{file} is no .* \(a pickle.*as torch.save.*\): "
            r"pass a file written by .*\n", said)
        cli.main(["compare", *[str(tmp_path/file)]*2])  # a checkpoint is one of the things that it compares
        assert re.fullmatch(r"All \d+ tensors are equal\.\n", capsys.readouterr().out)


def test_a_damaged_header_is_not_called_cut_off(tmp_path, originals):
    content = originals.content("record")
    end = content.index(b'"data_offsets"')
    other_name = content[:end] + b'"data_ofsfets"' + content[end + 14:]
    for new in other_name, content.replace(b'"F32"', b'"F3X"', 1), b"\7" + content[1:]:
        (tmp_path/"a.safetensors").write_bytes(new)
        said = refusal(open_tensors, tmp_path/"a.safetensors")
        assert "damaged" in said and "cut off" not in said
    (tmp_path/"a.safetensors").write_bytes(content[:-1])
    assert "was cut off" in refusal(open_tensors, tmp_path/"a.safetensors")


@pytest.mark.parametrize("name", ["/etc/passwd", "../features-00000.safetensors", "..", ".", "", "a/b", "a\0b"])
def test_a_name_stays_in_its_folder(tmp_path, name):
    assert "leads out of" in refusal(in_folder, tmp_path, name)
    assert in_folder(tmp_path, "features-00000.safetensors") == tmp_path/"features-00000.safetensors"


def test_a_link_stays_in_its_folder(tmp_path, originals):
    folder = originals.features(tmp_path/"features")
    shard = folder/"features-00000.safetensors"
    shard.rename(folder/"moved")
    shard.symlink_to("moved")
    assert len(load_features(folder, "embed")) == 40
    (folder/"moved").rename(tmp_path/"moved")
    shard.unlink()
    shard.symlink_to("../moved")
    assert "features-00000.safetensors' leads out of" in refusal(load_features, folder, "embed")


def test_an_index_of_somebody_else_is_not_to_be_deleted(tmp_path):
    for content in "{", "[1]", '{"shards": []}', '{"shards": [{"file": "/etc/passwd", "samples": [0]}]}', "[" * 100_000:
        (tmp_path/"index.json").write_text(content)
        said = refusal(load_features, tmp_path, "embed")
        assert "index.json" in said and "choose another folder" in said and "delete" not in said


def test_a_pipe_does_not_wait(tmp_path):
    os.mkfifo(tmp_path/"index.json")
    for read in (lambda path: read_json(path, {}, "extract"), open_tensors, hl.ActivationStats.load):
        assert "is a pipe or a device" in refusal(read, tmp_path/"index.json")


def test_one_number_that_stands_for_many_takes_no_memory(tmp_path, originals):
    "A tensor of which a record has a sample is as large as the record says."
    class Huge:
        def choice(self, given): return 4*10**8 if 4*10**8 in given else given[0]
        def randrange(self, n): return 0
    content = bomb("record", originals.content("record"), Huge())
    found = [*outcomes(Bomb(KINDS.index("record"), content), originals, tmp_path)]
    assert len(found) == 4 and not any(of.much or of.problem for of in found), found


def test_more_calls_than_can_be_paired_are_refused_before_they_take_memory(tmp_path, originals, capsys):
    "Each call of one record against each of the other would be a table of 64 million numbers."
    from hooklab import cli
    paths = []
    for name, n in ("record", 8_000), ("other", 8_001):
        file = facts_of("record", originals.content(name))
        first, *rest = file["says"]["calls"]
        for call in rest:
            if call["parent"] is not None: call["parent"] += n - 1
        said = {**first, "parent": first["parent"] + n - 1}
        file["says"]["calls"] = [*({**said, "number": i} for i in range(n)), *rest]
        paths.append(tmp_path/f"{name}.safetensors")
        paths[-1].write_bytes(written("record", file))
    with pytest.raises(SystemExit) as ended: cli.main(["compare", *map(str, paths)])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and said.count("\n") == 1
    assert re.search(r"the reference has 8,\d+ layer calls and the candidate 8,\d+, .* too many", said)


class Bomb(Case):
    def __init__(self, number, content):
        super().__init__(number)
        self.way = lambda *_: content


# Kinds

@pytest.mark.parametrize("x, kind", [
    (True, bool), (3, int), (3, float), (.5, float), ("a", str), (None, None), ([], [int]), ([1, 2], [int]),
    ({}, {str: int}), ({"a": 1}, {str: int}), ({"a": 1, "more": 2}, {"a": int, "b?": str}), ([1, "a"], (int, str)),
    (None, OneOf(int, None)), (3, range(4)), ("ab", re.compile("a.")), (2**63, float), ({"": 1}, {"": int})])
def test_what_fits(x, kind): assert misfit(x, kind) == ""


@pytest.mark.parametrize("x, kind, said", [
    (1, bool, "it is 1, and not true or false"), (True, int, "it is True, and not a whole number"),
    (True, float, "not a number"), (2**64, int, "not a whole number"), (10**400, float, "not a number"),
    (2.5, int, "it is 2.5, and not a whole number"), (None, str, "it is null"),
    ({}, [int], "it is a dict of length 0, and not a list"), ([1, "a"], [int], "it[1] is a text of length 1"),
    ({"a": "b"}, {str: int}, "it['a'] is"), ({"b": 1}, {"a": int}, "it has no 'a'"),
    ({"a": 1, "b": 1}, {"a": int, "b?": str}, "it['b'] is 1"), ([1], (int, str), "it has length 1, and not 2"),
    (4, range(4), "not a whole number from 0 to 3"), (True, range(4), "from 0 to 3"),
    ("b", re.compile("a"), "no text as it should be"), ("a", OneOf(int, None), "not a whole number"),
    ({"x": [{"y": 1}]}, {"x": [{"y": str}]}, "it['x'][0]['y'] is 1, and not a text")])
def test_what_does_not_fit(x, kind, said): assert said in misfit(x, kind)


def test_what_torch_has_written_is_read(tmp_path):
    save_file({"a": torch.ones(2)}, tmp_path/"a.safetensors")
    said = refusal(hl.ActivationStats.load, tmp_path/"a.safetensors")
    assert "has no statistics saved by ActivationStats: pass" in said
    assert "no record of a run: give" in refusal(compare, tmp_path/"a.safetensors", torch.nn.ReLU())
