"""The how-to pages whose libraries `make test` has not: their cells say `eval: false`, and run here."""
import json
import re

import pytest

from checks import copy_tree, failure, notebooks, outdated_outputs
from conftest import REPO

never = "#| eval: false\n"


def asks_for_more(notebook):
    "Does no code cell of this page run in `make test`?"
    codes = ["".join(cell["source"]) for cell in json.loads((REPO/notebook).read_text())["cells"] if cell["cell_type"] == "code"]
    return bool(codes) and all(code.startswith(never) for code in codes)


pages = [notebook for notebook in notebooks(REPO) if notebook.parts[1] == "howto" and asks_for_more(notebook)]


def test_there_are_such_pages():
    assert {page.stem for page in pages} >= {"fastai", "lightning", "hugging-face"}


@pytest.mark.peers
@pytest.mark.parametrize("page", pages, ids=lambda page: page.stem)
def test_runs_and_shows_what_is_saved(repo, tmp_path, page):
    tree = copy_tree(repo, tmp_path/"tree")
    nb = json.loads((tree/page).read_text())
    for cell in nb["cells"]: cell["source"] = "".join(cell["source"]).removeprefix(never)
    (tree/page).write_text(json.dumps(nb))
    problems = failure(tree, page)
    if not problems:
        fresh = json.loads((tree/page).read_text())
        for cell in fresh["cells"]:
            if "#| output: false\n" in cell["source"]: cell["outputs"] = []  # nor is it saved
        (tree/page).write_text(json.dumps(fresh))
        problems = outdated_outputs(repo, tree, page)
    if problems: pytest.fail("\n".join(problems), pytrace=False)


@pytest.mark.parametrize("page", pages, ids=lambda page: page.stem)
def test_what_is_saved_names_no_folder_of_a_machine(page):
    for cell in json.loads((REPO/page).read_text())["cells"]:
        for output in cell.get("outputs", []):
            texts = output.get("text", []), output.get("data", {}).get("text/plain", [])
            assert not re.search(r"(?:^|\s)(?:/\w+){2}", "".join("".join(text) for text in texts))
