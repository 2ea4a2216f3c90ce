"""The table “Where to change what” of the architecture page: each row leads to the room where the work is done, and no
room with rules is left out."""
import json
import re
from pathlib import Path

import pytest

import hooklab.all  # noqa: F401 (registers all rules)
from hooklab.findings.rules import RULES
from support.checks import REPO
from support.rules import parsed, rooms, top_names

PAGE = REPO/"nbs/explain/architecture.ipynb"
LINK = re.compile(r"\]\(([^)#]+)\.ipynb\)")
DONE_BY = {  # how a row begins: what the rooms that it leads to define for it
    "know when a layer's call starts and ends": "listen",
    "select layers in another way": "layers",
    "support another container of tensors": "parts_of",
    "find what a tensor was computed from": "nodes_before",
    "find which operation created": "traced",
    "quote the user's line": "user_frame",
    "hook another event": "OccasionHook",
    "add an edit like `scale`": "scale",
    "extract other features": "FeatureExtractor",
    "check something on every call": "GradientCheck",
    "add a column to `summary`": "COLUMNS",
    "count the multiply-adds of another operation": "MultiplyAdds",
    "add an event to the training loop": "with_events",
    "record another statistic for each layer": "STATISTICS",
    "diagnose another fault of a run": "rule",
    "add a check to `preflight`": "",
    "look for something odd in a data set": "read_set",
    "let a check try the model": "Flight",
    "record another fact about a run": "ParameterFacts",
    "draw another plot of a recorded run": "plot_over_time",
    "explain another model error": "reason_of",
    "change which layer `find_nan` blames": "blame_forward",
    "change how `compare` pairs layers": "Pair",
    "name another kind of difference in `compare`": "in_numbers",
    "recognize another change between a checkpoint and a model": "match_tensors",
    "change how all plots look": "axes_for",
    "use a name in output, errors, or warnings": "printable",
    "support another library's trainer": "lightning_callback",
    "add a lesson": "",
    "add a case to ": "",
    "add an exercise": "exercise",
    "add a command-line command": "add_command",
    "make a name public": "_all_",
}


def linked(text: str, page: Path) -> set[Path]:
    return {(page.parent/f"{target}.ipynb").resolve() for target in LINK.findall(text)}


def rows() -> dict[str, set[Path]]:
    "What one wants to change, and the notebooks to which its row leads."
    cells = ["".join(cell["source"]) for cell in json.loads(PAGE.read_text(encoding="utf-8"))["cells"]]
    table = next(text for text in cells if "## Where to change what" in text).partition("|---|---|\n")[2]
    found = [line.strip("| ").split(" | ", 1) for line in table.splitlines() if line.startswith("|")]
    return {what: linked(where, PAGE) for what, where in found}


def row_of(begins: str) -> set[Path]:
    return next(pages for what, pages in rows().items() if what.startswith(begins))


def rooms_of(pages: set[Path]) -> set[str]:
    "The rooms that are exported from these notebooks."
    names = {re.sub(r"-", "_", page.relative_to(REPO/"nbs/lib").with_suffix("").as_posix()).replace("/", ".")
             for page in pages if page.is_relative_to(REPO/"nbs/lib")}
    return names & rooms(REPO).keys()


def test_each_row_is_proved():
    known = rows()
    assert [begins for begins in DONE_BY if not any(what.startswith(begins) for what in known)] == []
    assert [what for what in known if not what.startswith(tuple(DONE_BY))] == []


@pytest.mark.parametrize("begins", [begins for begins, name in DONE_BY.items() if name])
def test_the_room_of_a_row_does_the_work(begins):
    pages = row_of(begins)
    assert all(page.exists() for page in pages)
    defined = set().union(*(names_in(room) for room in rooms_of(pages)))
    assert DONE_BY[begins] in defined, f"{begins}: {sorted(rooms_of(pages))} define no {DONE_BY[begins]}"


def names_in(room: str) -> set[str]:
    code = parsed(rooms(REPO)[room])
    private = set(re.findall(r"^(_\w+_) =", rooms(REPO)[room].read_text(encoding="utf-8"), re.M))
    return {*top_names(code), *private}


def test_no_room_with_rules_is_left_out():
    index = {"preflight": row_of("add a check to `preflight`") | row_of("look for something odd in a data set"),
             "diagnose": row_of("diagnose another fault of a run")}
    for tool, pages in index.items():
        listed = pages | set().union(*(linked(page.read_text(encoding="utf-8"), page) for page in pages
                                       if page.name == "index.ipynb"))
        modules = {each.look.__module__ for each in RULES if each.tool == tool}  # those of other tests, too
        with_rules = {name.removeprefix("hooklab.") for name in modules if name.startswith("hooklab.")}
        assert with_rules - rooms_of(listed) == set(), f"rooms with rules of {tool} that the table does not lead to"
        assert with_rules, tool
