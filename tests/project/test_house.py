"The numbers of support/house.py, on small trees of which they are known, and on this one."
import json
import subprocess
import sys

import pytest

from support import house
from support.checks import REPO
from support.entered import entered

TREE = {  # `Base` has one subclass, which imports it from a package, and only for types
    "hooklab/__init__.py": "from .hooks.calls import *\n",
    "hooklab/_modidx.py": "d = {}\n",
    "hooklab/hooks/__init__.py": "",
    "hooklab/hooks/calls.py": (
        "class Root: pass\nclass LayerHook(Root): pass\n"
        "class Inner:\n    class Part(Root): pass\n"),
    "hooklab/stats/__init__.py": "'Statistics.'\n",
    "hooklab/stats/record.py": (
        "from typing import TYPE_CHECKING\n"
        "from hooklab.hooks.calls import LayerHook as Watching\n"
        "if TYPE_CHECKING: from .measure.meters import Meter\n\n"
        "class Base(Watching):\n    def read(self): pass\n"),
    "hooklab/stats/measure/__init__.py": "from ..record import Base\n",
    "hooklab/stats/measure/meters.py": (
        "import hooklab.hooks.calls\n"
        "from typing import TYPE_CHECKING, Generic\n"
        "from .. import record\n"
        "if TYPE_CHECKING: from . import Base\n"
        "else: Base = object\n\n"
        "class Meter(Base, Generic):\n    async def read(self): return lambda: 0\n"
        "class Fast(Meter['float']): pass\nclass Slow(Meter): pass\n"
        "class Other(hooklab.hooks.calls.LayerHook): pass\n"),
}


@pytest.fixture
def tree(tmp_path):
    for name, text in TREE.items():
        (tmp_path/name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path/name).write_text(text, encoding="utf-8")
    return tmp_path


def test_size(tree):
    assert house.size(tree) == {"rooms": 3, "lines": 4 + 6 + 11, "classes": 9, "functions": 2}
    assert house.entries(tree) == {"hooklab": 2, "hooks": 1, "stats": 2, "stats.measure": 1}


def test_ladders(tree):
    found = house.ladders(tree)
    assert found["bases with one subclass"] == {"stats.record.Base": "stats.measure.meters.Meter"}
    assert found["most ancestors"] == 4
    up = ["stats.measure.meters.Fast", "stats.measure.meters.Meter", "stats.record.Base", "hooks.calls.LayerHook",
          "hooks.calls.Root"]
    assert found["whole chains"] == {"longest": 5, "rooms": 3, "classes": up, "in more than two": 5}
    assert found["chains below the engine"] == {"longest": 3, "rooms": 2, "classes": up[:3], "in more than two": 2}


def planted(folder, **rooms):
    "A tree of rooms in the wing `edit`."
    (folder/"hooklab"/"edit").mkdir(parents=True)
    for room, code in rooms.items(): (folder/"hooklab"/"edit"/f"{room}.py").write_text(code, encoding="utf-8")
    return folder


def test_an_own_class_comes_before_an_imported_one(tmp_path):
    b = "from .a import A\ndef f():\n    class A: pass\n    class B(A): pass\nclass C(A): pass\nclass A(A): pass\n"
    tree = planted(tmp_path, a="class A: pass\n", b=b)
    assert house.bases(tree) == {("edit.a", "A"): [], ("edit.b", "f.A"): [], ("edit.b", "f.B"): [("edit.b", "f.A")],
                                 ("edit.b", "C"): [("edit.b", "A")], ("edit.b", "A"): [("edit.a", "A")]}


def test_circles(tree):
    assert house.circles(tree, for_types=True) == [["stats.measure", "stats.measure.meters", "stats.record"]]
    assert house.circles(tree, for_types=False) == []


def test_a_circle_closed_in_a_function(tmp_path):
    leads = {"a": "b", "b": "c", "c": "a", "d": "a"}
    tree = planted(tmp_path, **{room: f"def f():\n    from .{other} import f\n" for room, other in leads.items()})
    assert house.circles(tree, for_types=False) == [["edit.a", "edit.b", "edit.c"]]


CODE = '''"""What it

is for."""

# alone
def f(x):  # behind
    "Once."
    return (x,
            "a")


x = """b

c"""
'''


def test_density(tmp_path):
    tree = planted(tmp_path, a=CODE)
    counted = house.counted(tree/"hooklab"/"edit"/"a.py")
    assert counted == {"tokens": 7 + 7 + 4, "written": 9, "code": 5}  # the tokens of three statements, with their ends
    by_line = {"by line": 2.0, "by line of code": 3.6}
    assert house.density(tree) == {"edit": by_line, "hooklab": by_line}


MODES = """from torch import overrides
from torch.overrides import TorchFunctionMode
class Own(TorchFunctionMode): pass
class Other(overrides.TorchFunctionMode): pass
class Else: pass
"""
FRAMES = """import inspect, sys
def one(frame):
    while frame: frame = frame.f_back
def two():
    def there(): return [f for f in (sys._getframe(),)]
    return there()
class Three:
    async def three(self):
        for n in range(3): print(inspect.currentframe())
def asks_once(): return sys._getframe(1).f_back
def loops_beside():
    def asks_once(): return sys._getframe(1)
    return [n for n in range(3)]
def walks(node): return node.next_functions
"""


def test_mechanisms(tmp_path):
    tree = planted(tmp_path, modes=MODES, frames=FRAMES, below="from .modes import Own\nclass Two(Own): pass\n",
                   names="def next_functions(): return 'next_functions'\n")
    hooks, measure = tree/"hooklab"/"hooks", tree/"hooklab"/"stats"/"measure"
    for folder in (hooks, measure): folder.mkdir(parents=True)
    (hooks/"modes.py").write_text(MODES, encoding="utf-8")
    more = "\nfrom ...hooks.modes import Own as Mode\n\nclass Three(Mode): pass\n"
    (measure/"more.py").write_text(more, encoding="utf-8")
    assert house.mechanisms(tree) == {
        "function modes outside hooks": 4, "files that walk graphs": 1, "functions that search frames": 3,
        "lines of checking, diagnosing and measure": 4}


LIMITS = {"function modes outside hooks": 0, "files that walk graphs": 3, "functions that search frames": 4,
          "lines of checking, diagnosing and measure": 15_500}  # of this tree: they may only fall


@pytest.mark.parametrize("what", LIMITS)
def test_there_are_few_mechanisms_for_one_thing(what): assert house.mechanisms(REPO)[what] <= LIMITS[what]


OF_RULES = """
def layer(run): return run.facts.get("layers", {})["0"]["type"]  # 2, and "0" is none
def kinds(run):
    found = [p["dtype"] for name, p in run.params.items() if p.get("moved")]  # 2
    for name, layer in run.facts.get("layers", {}).items(): found.append(layer["type"])  # 2
    return found
def schedules(run) -> list[dict]: return [*run.facts.schedules.values()]
def calls(run): return [s["calls"] for s in schedules(run)]  # 1
def rate(o: dict[str, float]): return o["lr"] if (known := o.get("eps")) else known["eps"]  # 3
def others(run, table): return run.numbers["mean"], table["lr"], run.facts.layers["0"].type, run.params.get("0")
"""
OF_A_METER = """
def resume(self, group: dict):
    before = self.facts
    group["lr"] = before["optimizers"][0]  # 1: groups are those of torch
    return self.params["n"], self.row.get("loss")
"""


def test_string_keys_of_facts(tmp_path):
    rooms = {"diagnosis/rules": OF_RULES, "stats/measure/meter": OF_A_METER, "stats/records/reading": OF_RULES}
    for name, code in rooms.items():
        file = tmp_path/"hooklab"/f"{name}.py"
        file.parent.mkdir(parents=True)
        file.write_text(code, encoding="utf-8")
    assert house.keys_of_facts(tmp_path) == {"diagnosis.rules": 10, "stats.measure.meter": 1}


def test_no_facts_have_string_keys():
    assert house.keys_of_facts(REPO) == {}


def test_what_is_entered(tmp_path, monkeypatch):
    one = "import planted_two\ndef f(): return sorted([2, 1], key=planted_two.g)\ndef h(x): return -x\n"
    two = "def g(x):\n    import planted_one\n    return (lambda: planted_one.h(x))()\ndef unused(): pass\n"
    (tmp_path/"planted_one.py").write_text(one, encoding="utf-8")
    (tmp_path/"planted_two.py").write_text(two, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import planted_one
    files = ["planted_one.py", "planted_two.py"]
    assert entered(planted_one.f, tmp_path) == {"files": files, "functions": 4, "moves": 2}
    assert entered(lambda: sorted([2, 1]), tmp_path) == {"files": [], "functions": 0, "moves": 0}
    with pytest.raises(TypeError): entered(planted_one.h, tmp_path)
    assert sys.getprofile() is None


def test_a_use_of_this_tree():
    found = house.uses(REPO, "hook_outputs")["hook_outputs"]
    assert "hooks/hook.py" in found["files"] and all((REPO/"hooklab"/file).is_file() for file in found["files"])
    assert len(found["files"]) < found["functions"] and 1 <= found["moves"] < found["functions"]


def test_what_is_printed_and_written(tree):
    python = [sys.executable, REPO/"tests"/"support"/"house.py", tree, "--no-uses", "--json", tree/"numbers.json"]
    said = subprocess.run(python, capture_output=True, text=True, check=True).stdout
    assert "3 rooms, " in said and "    stats.record.Base < stats.measure.meters.Meter\n" in said
    assert "1 circles, imports for types counted\n    3 rooms: stats.measure, " in said
    assert json.loads((tree/"numbers.json").read_text(encoding="utf-8")) == house.measured(tree, with_uses=False)
