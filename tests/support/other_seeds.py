"""Runs a lesson with other random numbers: what it asserts should not hold for one seed only.

    python tests/support/other_seeds.py nbs/lessons/05-stats.ipynb …   with two other seeds each
"""
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from support.checks import REPO, copy_tree, failure, run_skipped, skipped

SHIFTS = (1000, 2000)  # added to every seed that the lesson sets, so that lessons keep seeds apart that they want apart

SHIFTED = """\
import torch
_manual_seed = torch.manual_seed
torch.manual_seed = lambda seed: _manual_seed(seed + {shift})
torch.manual_seed(0)
"""


def fails_with_other_seeds(tree: Path, lesson: Path, shift: int) -> list[str]:
    "What goes wrong in a copy of the tree when the lesson runs with seeds that are larger by `shift`."
    nb = json.loads((tree/lesson).read_text(encoding="utf-8"))
    cell = dict(cell_type="code", id="shifted", metadata={}, outputs=[], execution_count=None)
    nb["cells"].insert(1, cell | {"source": SHIFTED.format(shift=shift)})
    (tree/lesson).write_text(json.dumps(nb), encoding="utf-8")
    return run_skipped(tree, lesson) if skipped(tree/lesson) else failure(tree, lesson)


def run(lesson: Path, shift: int) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        return fails_with_other_seeds(copy_tree(REPO, Path(folder)/"tree"), lesson, shift)


if __name__ == "__main__":
    problems = []
    for lesson in map(Path, sys.argv[1:]):
        for shift in SHIFTS: problems += [f"seeds + {shift}: {problem}" for problem in run(lesson, shift)]
    sys.exit("\n\n".join(problems) or 0)
