"""What `make check` and `make test` choose: what a change touches, and what takes longest first."""
import json
import subprocess
from pathlib import Path

import pytest

from support import check, sharing
from support.checks import REPO

TREE = {
    "hooklab/edit/clip.py": "", "hooklab/stats/page.py": "from ..edit.clip import x\n",
    "hooklab/stats/records/plots.py": "", "nbs/lib/edit/clip.ipynb": "", "nbs/lib/stats/page.ipynb": "",
    "nbs/lib/stats/records/plots.ipynb": "", "tests/stats/records/test_history.py": "",
    "nbs/lessons/01-one.ipynb": "", "nbs/lessons/02-more.ipynb": "\n- skip_exec: true",
    "tests/edit/test_clip.py": "", "tests/edit/test_other.py": "", "tests/exercises/test_exercises.py": "",
    "tests/edit/deep/test_deep.py": "",
    "tests/stats/test_page.py": "from hooklab.stats import page\n",
    "tests/hooks/test_hook.py": "from support.nets import Net\n", "tests/support/nets.py": "",
    "tests/project/test_site.py": "", "tools/site.py": "",
}


def git(tree, *args):
    person = ["-c", "user.name=x", "-c", "user.email=x"]
    subprocess.run(["git", *person, *args], cwd=tree, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path):
    "A small project with a commit."
    for name, text in TREE.items():
        (tmp_path/name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".ipynb"):
            text = json.dumps({"cells": [{"cell_type": "markdown", "source": [f"# Title{text}"]}]})
        (tmp_path/name).write_text(text)
    for args in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]): git(tmp_path, *args)
    return tmp_path


@pytest.mark.parametrize("names, pages, tests", [
    (["hooklab/edit/clip.py"], ["lib/edit/clip"],
     {"edit/test_clip": 1, "edit/test_other": 2, "stats/test_page": 3}),
    (["nbs/lib/stats/page.ipynb"], ["lib/stats/page"], {"stats/test_page": 1}),
    (["hooklab/stats/records/plots.py"], ["lib/stats/records/plots"],
     {"stats/records/test_history": 2, "stats/test_page": 3}),
    (["nbs/lessons/01-one.ipynb"], ["lessons/01-one"], {"exercises/test_exercises": 2}),
    (["nbs/lessons/02-more.ipynb"], [], {"exercises/test_exercises": 2}),
    (["tests/support/nets.py"], [], {"hooks/test_hook": 3}),
    (["tests/edit/test_other.py"], [], {"edit/test_other": 0}),
    (["tests/project/test_site.py"], [], {}),
    ([], [], {}),
])
def test_what_a_change_touches(tree, names, pages, tests):
    for name in names: (tree/name).write_text((tree/name).read_text() + "\n")
    found = check.changed(tree, "HEAD")
    assert found == names
    rooms = check.changed_rooms(tree, found)
    assert check.touched_notebooks(tree, found, rooms) == [Path("nbs", f"{page}.ipynb") for page in pages]
    assert check.touched_tests(tree, found, rooms) == {f"tests/{name}.py": close for name, close in tests.items()}


def test_a_new_file_is_a_change_and_a_deleted_one_is_not(tree):
    (tree/"tests/edit/test_new.py").touch()
    (tree/"tools/site.py").unlink()
    assert check.changed(tree, "HEAD") == ["tests/edit/test_new.py"]
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "y")
    assert check.changed(tree, "HEAD") == [] and check.changed(tree, "HEAD~1") == ["tests/edit/test_new.py"]


def test_no_more_is_chosen_than_a_minute_allows():
    costs = {"a": 9, "b": 60, "c": 5, "d": 40}
    assert check.within(50, [*costs], costs.get) == (["a", "c"], ["b", "d"])
    assert check.within(50, ["b", "c"], costs.get) == (["b"], ["c"]), "the closest one runs, whatever it takes"
    assert check.within(50, [], costs.get) == ([], [])


def test_a_notebook_is_a_unit_and_so_is_a_file():
    file = "tests/project/test_notebooks.py"
    assert sharing.unit(file, "test_runs[lib/hooks/tree]") == f"{file}[lib/hooks/tree]"
    assert sharing.unit("tests/hooks/test_hook.py", "test_it[a-b]") == "tests/hooks/test_hook.py"


def test_what_looks_at_the_site_is_known(monkeypatch):
    monkeypatch.chdir(REPO)
    assert sharing.looks_at_the_site("tests/project/test_browser.py")
    for other in ("tests/hooks/test_hook.py", "tests/project/test_notebooks.py[lib/hooks/tree]", "nothing.py"):
        assert not sharing.looks_at_the_site(other)


def test_costs_are_read_from_a_report(tmp_path):
    cases = [("tests.hooks.test_hook", "test_a[x]", 2.4), ("tests.hooks.test_hook", "test_b", 1.2),
             ("tests.project.test_notebooks", "test_runs[lib/a]", 5), ("tests.edit.test_edit", "test_c", 0.3),
             ("tests.project.test_notebooks", "test_is_clean[lib/a]", 1)]
    report = "".join(f'<testcase classname="{file}" name="{name}" time="{time}"/>' for file, name, time in cases)
    (tmp_path/"junit.xml").write_text(f"<testsuites><testsuite>{report}</testsuite></testsuites>")
    found = sharing.measured(tmp_path/"junit.xml")
    assert found == {"tests/project/test_notebooks.py[lib/a]": 6, "tests/hooks/test_hook.py": 4}
