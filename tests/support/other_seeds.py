"""Runs a lesson with other random numbers: what it asserts should not hold for one seed only.

    python tests/support/other_seeds.py nbs/lessons/05-stats.ipynb …   with two other seeds each
"""
import compileall
import inspect
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from support.checks import REPO, copy_tree, failure, run_skipped, skipped

SHIFTS = (1000, 2000)  # added to every seed that the lesson sets, so that lessons keep seeds apart that they want apart


def shift_seeds(by: int):
    """Add `by` to torch's seed wherever it is set from now on, and to that of the split of the data sets.

    The number of a patient in the clinic stays: it is a name. As a cell has this source, it imports what it needs."""
    import sys

    import torch

    import hooklab
    from hooklab.training import data
    plain = torch.manual_seed

    def manual_seed(seed):
        named = sys._getframe(1).f_globals.get("__name__") == "hooklab.exercises.twins"
        return plain(seed if named else seed + by)

    def with_other_split(make):
        def loaders(*args, seed=42, **kwargs): return make(*args, seed=seed + by, **kwargs)
        return loaders

    torch.manual_seed = torch.random.manual_seed = manual_seed
    hooklab.digits = data.digits = with_other_split(data.digits)
    data.tabular = with_other_split(data.tabular)
    torch.manual_seed(0)


NO_FIGURES = """\
import hooklab.exercises.figures
hooklab.exercises.figures.as_svg = lambda fig: ""  # nobody looks at them
"""


def fails_with_other_seeds(tree: Path, lesson: Path, shift: int) -> list[str]:
    "What goes wrong in a copy of the tree when the lesson runs with seeds that are larger by `shift`."
    nb = json.loads((REPO/lesson).read_text(encoding="utf-8"))
    cell = dict(cell_type="code", id="shifted", metadata={}, outputs=[], execution_count=None)
    nb["cells"].insert(1, cell | {"source": f"{inspect.getsource(shift_seeds)}\nshift_seeds({shift})\n{NO_FIGURES}"})
    (tree/lesson).write_text(json.dumps(nb), encoding="utf-8")
    return run_skipped(tree, lesson) if skipped(tree/lesson) else failure(tree, lesson)


def tree_to_run_in(folder: Path) -> Path:
    "A copy of the tree, compiled once for all lessons."
    tree = copy_tree(REPO, folder/"tree")
    compileall.compile_dir(tree/"hooklab", quiet=1)
    return tree


if __name__ == "__main__":
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        tree = tree_to_run_in(Path(folder))
        for lesson in map(Path, sys.argv[1:]):
            for shift in SHIFTS:
                found = fails_with_other_seeds(tree, lesson, shift)
                problems += [f"seeds + {shift}: {problem}" for problem in found]
    sys.exit("\n\n".join(problems) or 0)
