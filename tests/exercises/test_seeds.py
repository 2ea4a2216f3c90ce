"What a lesson says holds for other random numbers too: each lesson runs with two other seeds, and asserts the same."
import itertools
from pathlib import Path

import pytest

from support.checks import REPO, skipped
from support.other_seeds import SHIFTS, fails_with_other_seeds, tree_to_run_in
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
