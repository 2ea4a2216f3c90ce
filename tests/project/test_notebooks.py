"""Every notebook runs, is clean, and shows the outputs of its code."""
import compileall
import json

import pytest

from support.checks import REPO, copy_tree, failed_commands, failure, notebooks, outdated_outputs, skipped, unclean

# Several processes, each of which loads torch: their parts have tests of their own.
SLOW = {"howto/ddp", "howto/a-sharded-run", "howto/features-of-a-data-set"}


def name_of(path): return str(path.relative_to("nbs").with_suffix(""))
def each(paths): return pytest.mark.parametrize("notebook", paths, ids=name_of)
def marked(path): return pytest.param(path, marks=pytest.mark.slow) if name_of(path) in SLOW else path


each_notebook = each(notebooks(REPO))
# The others run in test_notebooks_more.py.
each_that_runs = each([marked(path) for path in notebooks(REPO) if not skipped(REPO/path)])


def stop(problems):
    if problems: pytest.fail("\n".join(problems), pytrace=False)


@pytest.fixture(scope="session")
def runs(repo, tmp_path_factory):
    "A copy of the tree to run notebooks in, and what went wrong in each notebook that has run."
    tree = copy_tree(repo, tmp_path_factory.mktemp("runs")/"tree")
    compileall.compile_dir(tree/"hooklab", quiet=1)  # once, and not in the process of each notebook
    return tree, {}


@pytest.fixture
def failed(runs, notebook):
    "What goes wrong when the notebook runs, which it does once for all its tests."
    tree, done = runs
    if notebook not in done: done[notebook] = failure(tree, notebook)
    return done[notebook]


@each_that_runs
def test_runs(failed, notebook):
    stop(failed)


@each_that_runs
def test_outputs_are_saved(runs, failed, repo, notebook):
    if failed: pytest.skip("it does not run")
    stop(outdated_outputs(repo, runs[0], notebook))


@each_notebook
def test_is_clean(repo, notebook):
    stop(unclean(repo, notebook))


@each_notebook
def test_shows_no_command_that_failed(repo, notebook):
    stop(failed_commands(repo/notebook))


def stream(text, name="stdout"): return {"output_type": "stream", "name": name, "text": text.splitlines(keepends=True)}


PLANTED = {
    "a command that is not there": ("!thing --help", stream("/bin/bash: line 1: thing: command not found\r\n")),
    "one in dash": ("!thing", stream("sh: 1: thing: not found\n")),
    "its exit code alone": ('!thing; echo "exit code $?"', stream("exit code 127\n")),
    "wrong arguments": ('x = !thing --no\nx', stream("thing: error: unrecognized arguments: --no\n")),
    "a missing file": ("%%bash\ncat nowhere", stream("cat: nowhere: No such file or directory\n")),
    "a missing module": ("!python -m thing", stream("/usr/bin/python: No module named thing\n")),
    "a script that raised": ("!python a.py", stream("1\n\x1b[31mTraceback (most recent call last)\x1b[0m:\n")),
    "a program that was killed": ("!python a.py", stream("step 1\nKilled\n")),
    "a traceback of a cell": ("f()", stream("Traceback (most recent call last):\n  …\nValueError: no\n")),
    "an error on stderr": ("f()", stream("torch.cuda.OutOfMemoryError: no room\n", "stderr")),
    "a process that was started": ("subprocess.run(a)", stream("a: can't open file 'b'\n", "stderr")),
    "an error as the output": ("1/0", {"output_type": "error", "ename": "ZeroDivisionError", "evalue": "by zero",
                                       "traceback": []})}
MEANT = {
    "an error that is caught": ("try: f()\nexcept OSError as e: print(e)", stream("No such file or directory\n")),
    "an error in words": ("told(f)", stream("RuntimeError: shapes cannot be multiplied\n")),
    "an answer of a command": ('!thing; echo "exit code $?"', stream("They first diverge in 3.\nexit code 1\n")),
    "all is well": ('!thing; echo "exit code $?"', stream("exit code 0\n")),
    "help of a command": ("!thing -h", stream("usage: thing [-h]\n")),
    "a warning": ("f()", stream("a.py:1: UserWarning: an error of 0.1 is likely\n  f()\n", "stderr"))}


def page_of(tmp_path, source, output, tags=()):
    cell = {"cell_type": "code", "id": "0badc0de", "execution_count": None, "metadata": {"tags": [*tags]},
            "outputs": [output], "source": source.splitlines(keepends=True)}
    (tmp_path/"planted.ipynb").write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4}))
    return tmp_path/"planted.ipynb"


@pytest.mark.parametrize("case", PLANTED)
def test_a_command_that_failed_is_found(tmp_path, case):
    found = failed_commands(page_of(tmp_path, *PLANTED[case]))
    assert len(found) == 1 and "planted.ipynb, cell 1, shows" in found[0]
    assert not failed_commands(page_of(tmp_path, *PLANTED[case], tags=["raises-exception"]))


@pytest.mark.parametrize("case", MEANT)
def test_what_is_meant_to_be_shown_is_no_failure(tmp_path, case):
    assert not failed_commands(page_of(tmp_path, *MEANT[case]))


@each_notebook
def test_is_small(repo, notebook):
    "A page is to load on a phone: pictures smaller (`figure.dpi`), or fewer."
    assert (repo/notebook).stat().st_size <= 300_000
