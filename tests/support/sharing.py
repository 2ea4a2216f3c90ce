"""Who runs what when two processes test: a file of tests or one notebook at a time, what takes longest first.

    python tests/support/sharing.py junit.xml            writes costs.json from a run with `--junitxml junit.xml`
    python tests/support/sharing.py junit.xml --slow     writes slow_costs.json from a run of the slow part
"""
import json
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from xdist.scheduler import LoadFileScheduling

COSTS = Path(__file__).with_name("costs.json")
SLOW_COSTS = Path(__file__).with_name("slow_costs.json")  # of what `make test-all` runs, for `make sweeps` too
FORGOTTEN = 2  # seconds: a file or notebook that takes less is not listed


def unit(file: str, test: str) -> str:
    "What one process runs as a whole: a file of tests, or all tests of one notebook."
    notebook = re.search(r"\[(.+)\]$", test)
    return f"{file}[{notebook[1]}]" if file.endswith("test_notebooks.py") and notebook else file


@cache
def looks_at_the_site(name: str) -> bool:
    "Whether a unit has tests that take the fixture `site`, of which the first waits for the site to be built."
    file = Path(name.partition("[")[0])
    return file.exists() and bool(re.search(r"^def \w+\(.*\bsite\b.*\):$", file.read_text(encoding="utf-8"), re.M))


class LongestFirst(LoadFileScheduling):
    """Hands out what takes longest first, so that the processes end at about the same time. All tests of the site are
    given to one process: while it builds the site, another one would wait."""
    def __init__(self, config, log):
        super().__init__(config, log)
        self.node_of_site = None
        slow = re.search(r"(?<!not )\b(slow|sweep)", config.option.markexpr)
        self.costs = json.loads((SLOW_COSTS if slow else COSTS).read_text(encoding="utf-8"))

    def _split_scope(self, nodeid): return unit(*nodeid.split("::", 1))

    def _assign_work_unit(self, node):
        elsewhere = self.node_of_site not in (None, node)
        fit = [name for name in self.workqueue if not (elsewhere and looks_at_the_site(name))]
        longest = max(fit or self.workqueue, key=lambda name: self.costs.get(name, FORGOTTEN))
        if looks_at_the_site(longest): self.node_of_site = node
        self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)


def measured(report: Path) -> dict[str, int]:
    "Seconds of each unit, from a report of pytest's."
    costs = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        file = case.get("classname").replace(".", "/") + ".py"
        costs[unit(file, case.get("name"))] += float(case.get("time"))
    return {name: round(seconds) for name, seconds in costs.most_common() if seconds >= FORGOTTEN}


if __name__ == "__main__":
    report, *slow = sys.argv[1:]
    (SLOW_COSTS if slow else COSTS).write_text(json.dumps(measured(report), indent=0) + "\n", encoding="utf-8")
