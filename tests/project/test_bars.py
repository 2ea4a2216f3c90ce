"""The bars of the benches: each is beside a figure of the results, and what is above its bar is said so."""
import json
from pathlib import Path

import pytest
from bench.bars import BARS, RESULTS, bar_of, bars_of, beside

PAGE = Path(__file__).parents[2]/"nbs/explain/performance.ipynb"


def kept(bench): return json.loads((RESULTS/f"{bench}.json").read_text())


def test_a_bar_is_that_of_its_row_or_of_each_row_but_the_median(monkeypatch):
    monkeypatch.setitem(BARS, "b", {"t": {"median": 1.1, "each": 1.5, "mlp": 2.}, "one": {"hooklab": 3.}})
    figures = {"t": {"mlp": [2, 2, 2], "gcn": [1, 1, 1], "median": [1, 1, 1]}, "one": {"plain": [1, 1, 1]}, "l": []}
    assert bars_of("b", figures) == {"t": {"mlp": 2., "gcn": 1.5, "median": 1.1}}
    assert bar_of("b", "one", "plain") is bar_of("b", "other", "gcn") is bar_of("other", "t", "gcn") is None
    monkeypatch.setitem(BARS, "b", {"t": {"each": 1.5}})
    assert bars_of("b", figures) == {"t": {"mlp": 1.5, "gcn": 1.5}}


def test_a_figure_above_its_bar_is_said_so():
    assert beside(1.181, 1.18) == "above its bar of 1.18"
    assert beside(1.18, 1.18) == "bar 1.18"
    assert beside(9., None) == ""


@pytest.mark.parametrize("bench", BARS)
def test_each_bar_has_its_figure_in_the_results(bench):
    found = kept(bench)
    assert found["bars"] == bars_of(bench, found["figures"]), "write them there with python -m tests.bench bars"
    for title, bars in BARS[bench].items():
        for row in bars: assert row == "each" or row in found["figures"][title], f"{bench}: {title}: {row}"


def test_the_page_says_what_is_above_its_bar_and_nothing_else():
    outputs = [output for cell in json.loads(PAGE.read_text())["cells"] for output in cell.get("outputs", [])]
    printed = [line for output in outputs for line in "".join(output.get("text", "")).splitlines()]
    said, title = [], None
    for line in printed:
        if not line.startswith(" "): title = line
        elif ", above its bar of " in line: said.append((title, line.strip()))
    wanted = []
    for bench in BARS:
        found = kept(bench)
        for title, bars in found["bars"].items():
            for row, bar in bars.items():
                middle = found["figures"][title][row][0]
                if middle > bar: wanted.append((title, f"{row}: {middle:.3g}, above its bar of {bar:g}"))
    assert said == wanted
