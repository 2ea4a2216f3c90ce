"""Every notebook runs, is clean, and shows the outputs of its code."""
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.checks import copy_tree, failure, notebooks, outdated_outputs, skipped, unclean
from conftest import REPO

def each(paths): return pytest.mark.parametrize("notebook", paths, ids=lambda path: str(path.relative_to("nbs").with_suffix("")))


each_notebook = each(notebooks(REPO))
each_that_runs = each([path for path in notebooks(REPO) if not skipped(REPO/path)])  # the others: test_notebooks_more.py


def stop(problems):
    if problems: pytest.fail("\n".join(problems), pytrace=False)


@pytest.fixture(scope="session")
def runs(request, repo, tmp_path_factory):
    "The notebooks that are to be tested, run in a copy of the tree: each in its own process, two at a time."
    tree = copy_tree(repo, tmp_path_factory.mktemp("runs")/"tree")
    chosen = {item.callspec.params["notebook"]: None for item in request.session.items if "runs" in getattr(item, "fixturenames", ())}
    with ThreadPoolExecutor(max_workers=2) as pool:
        yield tree, {notebook: pool.submit(failure, tree, notebook) for notebook in chosen}
        pool.shutdown(cancel_futures=True)  # when pytest stops early, so do they


@each_that_runs
def test_runs(runs, notebook):
    stop(runs[1][notebook].result())


@each_that_runs
def test_outputs_are_saved(runs, repo, notebook):
    tree, done = runs
    if done[notebook].result(): pytest.skip("it does not run")
    stop(outdated_outputs(repo, tree, notebook))


@each_notebook
def test_is_clean(repo, notebook):
    stop(unclean(repo, notebook))


@each_notebook
def test_is_small(repo, notebook):
    "A page is to load on a phone: pictures smaller (`figure.dpi`), or fewer."
    assert (repo/notebook).stat().st_size <= 300_000
