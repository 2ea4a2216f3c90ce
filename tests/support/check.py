"""What `make check` does, within a minute: lint, export, the rule, and the notebooks and tests that a change touches.

    python tests/support/check.py              what has changed since the last commit
    python tests/support/check.py --since main   what has changed since another one
"""
import argparse
import ast
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from support.checks import REPO, copy_tree, failure, notebooks, outdated_outputs, skipped, stale_exports, unclean
from support.rules import imports, package, rooms

SECONDS = 50  # for what is chosen: the rest takes about ten
COSTS = json.loads(Path(__file__).with_name("costs.json").read_text(encoding="utf-8"))
UNKNOWN = 3  # seconds of a file or notebook that costs.json does not know
ALWAYS = "tests/project/test_layers.py"
# Building it takes longer than a minute.
SITE = [f"tests/project/test_{name}.py" for name in ("site", "browser", "search", "around", "weight")]
NEVER = {"tests/project/test_notebooks.py", ALWAYS, *SITE}


def changed(tree: Path, since: str) -> list[str]:
    "Files that differ from a commit, new ones too."
    def git(*args): return subprocess.run(["git", *args], cwd=tree, capture_output=True, text=True, check=True).stdout
    names = git("diff", "--name-only", "-z", since) + git("ls-files", "-z", "--others", "--exclude-standard")
    return sorted({name for name in names.split("\0") if name and (tree/name).exists()})


def cost(name: str) -> float: return COSTS.get(name, UNKNOWN)


def notebook_cost(page: Path) -> float:
    return cost(f"tests/project/test_notebooks.py[{page.relative_to('nbs').with_suffix('')}]")


def room_of(page: str) -> str:
    "The room that a notebook makes."
    return page.removeprefix("nbs/lib/").removesuffix(".ipynb").replace("-", "_").replace("/", ".")


def changed_rooms(tree: Path, names: Iterable[str]) -> set[str]:
    "Rooms whose notebook or file has changed."
    files = {f"hooklab/{room.replace('.', '/')}.py": room for room in rooms(tree)}
    return {files[name] for name in names if name in files} | {room_of(name) for name in names} & rooms(tree).keys()


def touched_notebooks(tree: Path, names: list[str], changed: set[str]) -> list[Path]:
    "Notebooks that have changed, and those of changed rooms."
    pages = [page for page in notebooks(tree) if str(page) in names or room_of(str(page)) in changed]
    return [page for page in pages if not skipped(tree/page)]


def touched_tests(tree: Path, names: list[str], changed: set[str]) -> dict[str, int]:
    """Files of tests that have to do with what has changed, and how closely.

    They have changed (0), are named after a changed room or import it (1), lie in the folder of its package or, where
    it is in none, of its wing (2), or lie in the folder of the wing around its package, import a changed helper, or
    import a room that imports the changed one (3)."""
    users = {one.room for one in imports(tree) if one.target in changed}
    helpers = {f"support.{Path(name).stem}" for name in names if name.startswith("tests/support/")}
    folders = {package(room).replace(".", "/") for room in changed}
    if any(name.startswith("nbs/lessons/") for name in names): folders.add("exercises")
    around = {folder.partition("/")[0] for folder in folders}
    found = {}
    for file in sorted((tree/"tests").rglob("test_*.py")):
        name = file.relative_to(tree).as_posix()
        if name in NEVER: continue
        imported = set(imported_by(file))
        stem = file.stem.removeprefix("test_")
        if name in names: found[name] = 0
        elif any(stem == room.rpartition(".")[2] or f"hooklab.{room}" in imported for room in changed): found[name] = 1
        elif (folder := file.parent.relative_to(tree/"tests").as_posix()) in folders: found[name] = 2
        elif folder in around or imported & ({f"hooklab.{room}" for room in users} | helpers): found[name] = 3
    return found


def imported_by(file: Path) -> Iterator[str]:
    "Modules that a file names in its imports, the names it takes from them as well, for they may be modules."
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import): yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def within(seconds: float, candidates: list, cost) -> tuple[list, list]:
    "(those that fit, the others), in the order given; the first is always taken."
    chosen, left = [], []
    for one in candidates:
        if chosen and cost(one) > seconds: left.append(one)
        else:
            chosen.append(one)
            seconds -= cost(one)
    return chosen, left


def run_notebooks(pages: list[Path]) -> list[str]:
    "What is wrong with notebooks; they run in a copy of the tree."
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_tree(REPO, Path(folder)/"tree")
        problems += stale_exports(copy_tree(REPO, Path(folder)/"export"))
        for page in pages:
            problems += unclean(REPO, page) + (failure(copy, page) or outdated_outputs(REPO, copy, page))
    return problems


def main():
    parser = argparse.ArgumentParser(description="Check what a change touches, within a minute.")
    parser.add_argument("--since", default="HEAD", help="the commit to compare with; else the last one")
    start, names = time.monotonic(), changed(REPO, parser.parse_args().since)
    touched = changed_rooms(REPO, names)
    pages = sorted(touched_notebooks(REPO, names, touched), key=notebook_cost)
    pages, pages_left = within(SECONDS/2, pages, notebook_cost)
    close = touched_tests(REPO, names, touched)
    tests = sorted(close, key=lambda name: (close[name], cost(name)))
    tests, tests_left = within(SECONDS - sum(map(notebook_cost, pages)), tests, cost)
    print(f"Changed: {', '.join(names) or 'nothing'}")
    print("Runs: the linter, the rule, the export", *pages, *tests, sep=", ")
    python = [sys.executable, "-m", "pytest", "-q", "--no-header", ALWAYS, *tests]
    testing = subprocess.Popen(python, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    problems = run_notebooks(pages)
    said = testing.communicate()[0]
    if testing.returncode: problems.append(said)
    if any(name.startswith(("tools/", "nbs/assets/", "_quarto.yml", *SITE)) for name in names): tests_left += SITE
    if left := [*map(str, pages_left), *tests_left]: print("Left out, to stay within a minute:", ", ".join(left))
    if problems: sys.exit("\n".join(problems))
    print(f"Nothing is wrong there, after {time.monotonic() - start:.0f} s. Before you commit: make test")


if __name__ == "__main__": main()
