"""What the lessons assert, with five other seeds each: with how many all of it holds, and what fails with which.

    python -m tests.bench claims --only 05 21    these lessons; what was found of the others is kept
    python -m tests.bench claims --sets 09 21    the tables in these lessons: figures for ten sets of seeds

Seeds of weights, batches and drawn data change, and the split of data sets; stored weights and patients do not. Then
`python tests/support/lesson_claims.py` writes into each lesson with how many seeds it was tried."""
import ast
import json
import re
import sys
import tempfile
from contextlib import redirect_stdout
from multiprocessing import get_context
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
if str(TESTS) not in sys.path: sys.path.insert(0, str(TESTS))
from support.checks import REPO  # noqa: E402
from support.lesson_claims import TITLE, claimed, source, tried  # noqa: E402
from support.other_seeds import fails_with_other_seeds, shift_seeds, tree_to_run_in  # noqa: E402

SHIFTS = (10, 20, 30, 40, 50)  # other seeds than those of tests/exercises/test_seeds.py; lessons set seeds below ten
SETS = range(0, 1000, 100)
HEADLINES = {  # the columns of the table in a lesson
    "09": "too_long, step_lengths(broken).max(), at_a_rate, at_a_ratio, *best[:, 1].aminmax(), slow, medium, fast",
    "21": "narrow / wide, *map(at_narrows_best, (in_standard, in_mup)), rates[2] / rates[0], change[1], at_the_end[1]"}


def what_fails(problem: str) -> str:
    "The error, the cell and its assertions, on a line."
    cell, error = re.search(r"(cell \d+|\w+): (.+?)\. Fix it|$", problem).groups(default="")
    return f"{cell}: {error}: {'; '.join(line.strip() for line in problem.splitlines() if 'assert ' in line)}"


def row_of(tree: Path, path: Path) -> dict:
    "With how many seeds all that a lesson asserts holds."
    row = {"lesson": path.stem, "asserts": claimed(json.loads(path.read_text(encoding="utf-8"))["cells"])}
    fails = {}
    for shift in SHIFTS:
        problems = fails_with_other_seeds(tree, path.relative_to(REPO), shift)
        if any("which is not installed" in problem for problem in problems):
            return row | {"seeds": 0, "hold": 0, "fails": {}, "left out": "needs more than is installed"}
        if problems: fails[f"seeds + {shift}"] = what_fails(problems[0])
    return row | {"seeds": len(SHIFTS), "hold": len(SHIFTS) - len(fails), "fails": fails}


def headline(run: tuple[Path, int]) -> str:
    "A row of the table in a lesson: its code up to the exercises runs with other seeds, without its assertions."
    path, shift = run
    shift_seeds(shift)
    names, cells = {}, json.loads(path.read_text(encoding="utf-8"))["cells"]
    end = next(i for i, cell in enumerate(cells) if "## Exercises" in source(cell))
    lines = ast.parse("\n".join(source(cell) for cell in cells[:end] if cell["cell_type"] == "code")).body
    code = compile(ast.Module([line for line in lines if not isinstance(line, ast.Assert)], []), path.name, "exec")
    with redirect_stdout(None): exec(code, names)
    figures = eval(f"[{HEADLINES[path.name[:2]]}]", names)
    return f"[{', '.join(f'{float(figure):.3g}' for figure in figures)}],"


def measure(*options: str) -> dict | None:
    if options[:1] == ("--sets",):
        asked = [next((REPO/"nbs"/"lessons").glob(f"{number}-*.ipynb")) for number in options[1:]]
        runs = [(path, shift) for path in asked for shift in SETS]
        with get_context("fork").Pool(1, maxtasksperchild=1) as pool:  # each in a process of its own: shifts add up
            for row in pool.imap(headline, runs): print(row, flush=True)
        return None
    only, found = {*options} - {"--only"}, tried()
    paths = sorted((REPO/"nbs"/"lessons").glob("[0-9]*.ipynb"))
    with tempfile.TemporaryDirectory() as folder:
        tree = tree_to_run_in(Path(folder))
        for path in paths:
            if only and path.name[:2] not in only: continue
            found[path.stem] = row_of(tree, path)
            print(found[path.stem], file=sys.stderr, flush=True)
    return {TITLE: [found[path.stem] for path in paths if path.stem in found]}
