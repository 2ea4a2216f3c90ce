"What a lesson says holds for other random numbers too: each lesson runs with two other seeds, and asserts the same."
import itertools
import json
import re
from pathlib import Path

import pytest
import torch
from bench.bench_claims import SHIFTS as OF_THE_BENCH, what_fails

import hooklab as hl
from hooklab.training import data
from support.checks import REPO, skipped
from support.other_seeds import SHIFTS, fails_with_other_seeds, shift_seeds, tree_to_run_in
from support.portions import sample, sweep

lessons = [path.relative_to(REPO) for path in sorted((REPO/"nbs"/"lessons").glob("[0-9]*.ipynb"))]


def name(run): return f"{run[0].stem}-{run[1]}"


# each lesson with one of the seeds at least
RUNS = sample(2, itertools.product(lessons, SHIFTS), name=name, kind=lambda run: run[0])


def marked(lesson, shift):
    marks = pytest.mark.peers if skipped(REPO/lesson) else ()
    return pytest.param(lesson, shift, id=name((lesson, shift)), marks=marks)


@pytest.fixture(scope="module")
def tree(tmp_path_factory): return tree_to_run_in(tmp_path_factory.mktemp("seeds"))


@sweep
@pytest.mark.parametrize(("lesson", "shift"), [marked(*run) for run in RUNS])
def test_lesson_holds_with_other_seeds(tree: Path, lesson: Path, shift: int):
    if problems := fails_with_other_seeds(tree, lesson, shift): pytest.fail("\n".join(problems), pytrace=False)


@pytest.fixture
def unshifted(monkeypatch):
    "Whatever `shift_seeds` replaces is put back."
    for at, name in ((torch, "manual_seed"), (torch.random, "manual_seed"),
                     (hl, "digits"), (data, "digits"), (data, "tabular")):
        monkeypatch.setattr(at, name, getattr(at, name))
    with torch.random.fork_rng(devices=[]): yield


def drawn():
    "What a lesson draws in three ways, and a patient."
    torch.manual_seed(3)
    order = torch.randperm(20, generator=torch.manual_seed(4))
    return torch.rand(5), order, hl.digits().train.dataset.tensors[1], hl.patient(5).x


def test_all_that_a_lesson_draws_is_shifted_and_a_patient_stays(unshifted):
    *before, patient = drawn()
    shift_seeds(10)
    *after, same = drawn()
    assert not any(torch.equal(a, b) for a, b in zip(before, after, strict=True)) and torch.equal(patient, same)


def test_the_bench_takes_other_seeds_than_the_tests(): assert len({*OF_THE_BENCH, *SHIFTS, 0}) == 8


@pytest.mark.parametrize("lesson", lessons, ids=lambda path: path.stem)
def test_lessons_draw_only_what_is_shifted(lesson):
    "A generator of its own, or one of numpy or Python, would give the same numbers with each seed."
    cells = json.loads((REPO/lesson).read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    others = r"torch\.Generator|random\.seed|default_rng|n(um)?py?\.random|^import random|random_state="
    assert not re.search(others, code, re.M), "let tests/support/other_seeds.py shift it"


def test_what_fails_is_named_on_a_line():
    problem = ("nbs/lessons/05-stats.ipynb, cell 25: AssertionError. Fix it with `make lab`\n\n"
               "dead = fractions()\nassert dead[0] == 0\n")
    assert what_fails(problem) == "cell 25: AssertionError: assert dead[0] == 0"
