"""Every notebook runs, is clean, and shows the outputs of its code."""
import compileall

import pytest

from support.checks import REPO, copy_tree, failure, notebooks, outdated_outputs, skipped, unclean

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
def test_is_small(repo, notebook):
    "A page is to load on a phone: pictures smaller (`figure.dpi`), or fewer."
    assert (repo/notebook).stat().st_size <= 300_000
