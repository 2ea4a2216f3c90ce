"""Runs notebooks and saves their outputs, for `make refresh` and `make refresh-more`.

    python tests/support/refresh.py                every notebook, in the tree itself, two at a time
    python tests/support/refresh.py --more         those that need more than `make test` has, in a copy
    python tests/support/refresh.py nbs/index.ipynb …   these
"""
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from support.checks import REPO, command, copy_tree, failure, notebooks, run_skipped, skipped


def refresh(pages: list[Path]) -> list[str]:
    "Run notebooks of the tree, save their outputs and clean them; what went wrong."
    def one(page):
        problems = failure(REPO, page)
        print("\n".join(problems) or page, flush=True)
        return problems
    with ThreadPoolExecutor(max_workers=2) as pool:
        problems = [problem for found in pool.map(one, pages) for problem in found]
    command(REPO, "nbdev-clean")  # all of them, also those that are not run
    return problems


def refresh_more(page: Path):
    "Run one that needs more, in a copy, and keep it when it has run."
    print(page, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_tree(REPO, Path(folder)/"tree")
        if problems := run_skipped(tree, page): sys.exit("\n".join(problems))
        shutil.copyfile(tree/page, REPO/page)
    command(REPO, "nbdev-clean", "--fname", page)


if __name__ == "__main__":
    if sys.argv[1:] == ["--more"]:
        for page in notebooks(REPO):
            if skipped(REPO/page): refresh_more(page)
    else:
        pages = [*map(Path, sys.argv[1:])] or [page for page in notebooks(REPO) if not skipped(REPO/page)]
        if refresh(pages): sys.exit(1)
