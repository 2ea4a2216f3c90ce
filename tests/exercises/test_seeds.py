"What a lesson says holds for other random numbers too: each lesson runs with two other seeds, and asserts the same."
from pathlib import Path

import pytest

from support.checks import REPO, skipped
from support.other_seeds import SHIFTS, fails_with_other_seeds, tree_to_run_in

lessons = [path.relative_to(REPO) for path in sorted((REPO/"nbs"/"lessons").glob("[0-9]*.ipynb"))]


def marked(path): return pytest.param(path, marks=pytest.mark.peers) if skipped(REPO/path) else path


@pytest.fixture(scope="module")
def tree(tmp_path_factory): return tree_to_run_in(tmp_path_factory.mktemp("seeds"))


@pytest.mark.slow
@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("lesson", map(marked, lessons), ids=lambda path: path.stem)
def test_lesson_holds_with_other_seeds(tree: Path, lesson: Path, shift: int):
    if problems := fails_with_other_seeds(tree, lesson, shift): pytest.fail("\n".join(problems), pytrace=False)
