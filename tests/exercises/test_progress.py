"What is kept in a learner's folder: tries and guesses, and nothing elsewhere."
import fcntl
import json
import os
import re
import subprocess
import sys
import threading
import warnings

import pytest
import yaml

from hooklab.exercises import check, guess, how_far
from hooklab.exercises.checking import TRIES, NotYet
from hooklab.exercises.progress import FILE, TRACKS, Map, Progress, begin, course, note, read_tries, reset
from support.checks import REPO

WHOLE = sum(len(lesson.exercises) for lesson in course().values())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    "A learner's folder, which is the working directory."
    begin(tmp_path)
    monkeypatch.chdir(tmp_path)
    TRIES.clear()
    return tmp_path


def rows(folder): return [json.loads(line) for line in (folder/FILE).read_text().splitlines()[1:]]


def right(model, layer, x):
    shapes = []
    with layer.register_forward_hook(lambda m, i, o: shapes.append(o.shape)): model(x)
    return shapes[0]


def wrong(model, layer, x): return model(x).shape
def stub(model, layer, x): raise NotImplementedError


def test_nothing_is_noted_elsewhere(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    check("01a", right)
    guess("05.1", "nearly all")
    out = capsys.readouterr().out
    assert os.listdir(tmp_path) == [] and "lesson 01" not in out and "About a third" in out
    (tmp_path/"inside").mkdir()
    begin(tmp_path)
    monkeypatch.chdir(tmp_path/"inside")
    check("01a", right)
    assert os.listdir() == [] and rows(tmp_path) == []
    for place in ("", "nbs", "nbs/lessons", "nbs/lib/exercises"): assert not (REPO/place/FILE).exists()


def test_tries_of_an_exercise(folder, capsys):
    for answer in (stub, wrong, wrong):
        with pytest.raises(NotYet): check("01a", answer)
    check("01a", right)
    found = rows(folder)
    assert [(row["right"], row["try"]) for row in found] == [(False, 1), (False, 2), (True, 3)]
    assert all(row["what"] == "01a" and 0 <= row["minutes"] < 5 for row in found)
    assert all(row.keys() == {"what", "right", "try", "minutes", "at"} for row in found)
    assert capsys.readouterr().out.endswith(f"· lesson 01: 1 of 3 · course: 1 of {WHOLE} · next: 01b\n")


def test_letters_count_as_exercises(folder, capsys):
    with pytest.raises(NotYet, match="asks for a letter"): check("05r", right)
    with pytest.raises(NotYet, match="every unit is positive"): check("05r", "A")
    check("05r", "c")
    assert [(row["right"], row["try"]) for row in rows(folder)] == [(False, 1), (True, 2)], "no letter is no try"
    note("05a", True)
    check("05r", "C")
    assert capsys.readouterr().out.endswith(f" · try 1 · lesson 05: 2 of 4 · course: 2 of {WHOLE} · next: 05b\n")
    progress = Map(Progress(read_tries(folder/FILE), course()))
    assert "05 Activation health          2 of 4   4 tries" in str(progress) and "2 of 4" in progress._repr_html_()


def test_minutes_are_counted_from_the_first_try(folder):
    with (folder/FILE).open("a") as file: print(json.dumps({"what": "01a", "right": False, "at": 0}), file=file)
    check("01a", right)
    assert rows(folder)[-1]["minutes"] > 60*24*365*50 and rows(folder)[-1]["try"] == 2


def test_lesson_that_is_done(folder, capsys):
    for what in ("01b", "01c", "02a"): note(what, True)
    guess("01.1", "five to ten times smaller")
    guess("01.2", "about 12 times")
    guess("02.1", "only one")
    check("01a", right)
    told = capsys.readouterr().out.splitlines()[-1]
    assert told.endswith(f"lesson 01: 3 of 3 · course: 4 of {WHOLE} · guesses: 1 of 2 right here, 2 of 3 in all · "
                         "next: lesson 02, When hooks fire")


def test_first_guess_counts_and_what_is_no_guess_is_not_kept(folder, capsys):
    for text in ("", "...", "seven", "?", "nearly all", "ABOUT A THIRD"): guess("05.1", text)
    assert [(row["guess"], row["right"]) for row in rows(folder)] == [("nearly all", False), ("about a third", True)]
    assert "guesses: 0 of 1 right" in str(Map(Progress(read_tries(folder/FILE), course())))
    out = capsys.readouterr().out
    assert out.count("About a third") == 3 and "'seven' is no option" in out and out.count('With "?"') == 3
    with pytest.raises(LookupError, match="no question '05.7'"): guess("05.7", "two")


BROKEN = [b"", b"\xff\xfe\n", b"{", b"[1]\nnull\n{}\n", b'{"what": "01a"}\n{"what": 1, "at": 2}\n',
          b'x\n{"what": "01a", "at": "now"}']


@pytest.mark.filterwarnings("ignore:.*left out")
@pytest.mark.parametrize("content", BROKEN)
def test_broken_file_costs_no_answer(folder, content, capsys):
    (folder/FILE).write_bytes(content)
    check("01a", right)
    assert capsys.readouterr().out.startswith("ok: 01a, ")
    assert [row["what"] for row in read_tries(folder/FILE)] in ([], ["01a"])
    check("01a", right)
    assert read_tries(folder/FILE)[-1]["right"] is True, "what is added can be read again"


def test_broken_line_is_told(folder):
    with (folder/FILE).open("a") as file: file.write("{half")
    with pytest.warns(UserWarning, match="1 line of .* cannot be read and is left out"): note("01a", True)
    with pytest.warns(UserWarning): assert [row["what"] for row in read_tries(folder/FILE)] == ["01a"]


@pytest.mark.parametrize(("content", "told"), [
    (b"[1,2,3]", "1 line of"), (b"[1,2,3]\n[4]\n", "2 lines of"), (b"null\n", "1 line of"), (b"3", "1 line of"),
    (b'{"other": 1}\n', "1 line of"), (b'"hooklab"\n', "1 line of"), (b"\n\n", None), (b"", None)])
def test_file_without_the_header_is_told(folder, content, told):
    "Its first line is no header, so it is not passed over."
    (folder/FILE).write_bytes(content)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert "0 of 3" in str(how_far())
    assert len(caught) == (1 if told else 0) and all(told in str(each.message) for each in caught)


def test_first_try_counts_where_the_header_is_lost(folder):
    note("01a", True)
    (folder/FILE).write_bytes((folder/FILE).read_bytes().split(b"\n", 1)[1])
    assert [row["what"] for row in read_tries(folder/FILE)] == ["01a"]


def test_folder_in_its_place_is_told_once(folder, capsys):
    (folder/FILE).unlink()
    (folder/FILE).mkdir()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check("01a", right)
        with pytest.raises(NotYet): check("01a", wrong)
        guess("05.1", "about a third")
        assert "0 of 3" in str(how_far())
    assert capsys.readouterr().out.startswith("ok: 01a, ")
    assert [str(each.message) for each in caught] == [f"Progress is not kept: {folder/FILE} is no file."]


def test_file_that_cannot_be_written_costs_a_warning(folder, monkeypatch, capsys):
    def refuses(*args): raise PermissionError(13, "Permission denied", FILE)
    monkeypatch.setattr(os, "open", refuses)
    with pytest.warns(UserWarning, match="Progress is not kept: .*Permission denied"): check("01a", right)
    assert capsys.readouterr().out.startswith("ok: 01a, ") and rows(folder) == []
    with pytest.warns(UserWarning, match="is not kept"), pytest.raises(NotYet, match="whole model"): check("01a", wrong)


def test_two_notebooks_at_once(folder):
    program = "from hooklab.exercises.progress import note\nfor k in range(150): note('01a', k % 2 == 0, filler='x'*50)"
    environ = os.environ | {"PYTHONPATH": str(REPO)}
    command = [sys.executable, "-W", "error::UserWarning", "-c", program]
    both = [subprocess.Popen(command, env=environ) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert len(rows(folder)) == 300


@pytest.mark.parametrize("read", [lambda folder: read_tries(folder/FILE), lambda folder: note("01b", True)],
                         ids=["read", "note"])
def test_line_that_another_notebook_is_writing_is_waited_for(folder, read):
    found = []
    with (folder/FILE).open("ab", buffering=0) as file, warnings.catch_warnings():
        warnings.simplefilter("error")
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(b'{"what": "01a", ')
        reader = threading.Thread(target=lambda: found.extend(read(folder)))
        reader.start()
        reader.join(0.3)
        assert reader.is_alive() and not found
        file.write(b'"at": 1, "right": true}\n')
        file.close()
        reader.join()
    assert found[0]["what"] == "01a" and len(rows(folder)) == len(found)


def test_reset_keeps_the_old_file(folder):
    note("01a", True)
    old = reset(folder)
    assert rows(folder) == [] and "01a" in old.read_text()
    begin(folder)
    note("01b", True)
    begin(folder)
    assert [row["what"] for row in rows(folder)] == ["01b"], "what is kept stays"


def test_each_lesson_is_in_one_track():
    numbers = [number for track in TRACKS.values() for number in track]
    assert sorted(numbers) == sorted(course()) and len({*numbers}) == len(numbers)


def test_the_site_has_the_same_tracks():
    sections = yaml.safe_load((REPO/"_quarto.yml").read_text(encoding="utf-8"))["website"]["sidebar"]["contents"]
    groups = next(part for part in sections if part.get("section") == "Lessons")["contents"]
    found = {group["section"]: [file[8:10] for file in group["contents"] if file[8:10].isdigit()] for group in groups}
    assert [*found.items()][:len(TRACKS)] == [*TRACKS.items()]


def test_next_leads_through_the_tracks():
    order = [lesson.file for lesson in course().values()]
    for file, following in zip(order, order[1:]):
        last = json.loads((REPO/"nbs"/"lessons"/file).read_text(encoding="utf-8"))["cells"][-1]["source"]
        expected = "clinic.ipynb" if file.startswith("22") else following
        assert re.search(r"\*\*Next:\*\* \[[^]]+\]\(([\w-]+\.ipynb)\)", "".join(last))[1] == expected, file
