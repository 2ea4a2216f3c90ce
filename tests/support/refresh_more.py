"""Runs the notebooks that need more than `make test` has, and saves their outputs: what `make refresh` is to the others."""
import shutil
import sys
import tempfile
from pathlib import Path

from support.checks import command, copy_tree, notebooks, run_skipped, skipped

repo = Path(__file__).resolve().parents[2]

for page in notebooks(repo):
    if not skipped(repo/page): continue
    print(page, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_tree(repo, Path(folder)/"tree")
        if problems := run_skipped(tree, page): sys.exit("\n".join(problems))
        shutil.copyfile(tree/page, repo/page)
    command(repo, "nbdev-clean", "--fname", page)
