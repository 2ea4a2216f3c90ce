"""The notebooks that need more than `make test` has: they say `skip_exec: true`, and run here."""
import json
import re

import pytest

from support.checks import REPO, copy_tree, notebooks, outdated_outputs, run_skipped, skipped

pages = [notebook for notebook in notebooks(REPO) if skipped(REPO/notebook)]


def test_there_are_such_pages():
    assert {page.stem for page in pages} >= {"fastai", "lightning", "hugging-face"}


@pytest.mark.peers
@pytest.mark.parametrize("page", pages, ids=lambda page: page.stem)
def test_runs_and_shows_what_is_saved(repo, tmp_path, page):
    tree = copy_tree(repo, tmp_path/"tree")
    if problems := run_skipped(tree, page) or outdated_outputs(repo, tree, page): pytest.fail("\n".join(problems), pytrace=False)


@pytest.mark.parametrize("page", pages, ids=lambda page: page.stem)
def test_what_is_saved_names_no_folder_of_a_machine(page):
    for cell in json.loads((REPO/page).read_text())["cells"]:
        for output in cell.get("outputs", []):
            texts = output.get("text", []), output.get("data", {}).get("text/plain", [])
            assert not re.search(r"(?:^|\s)(?:/\w+){2}", "".join("".join(text) for text in texts))
