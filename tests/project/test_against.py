"""`python -m tests.bench against COMMIT`: which prices differ, and the package of another commit."""
import subprocess
from pathlib import Path

import pytest
from bench import against
from bench.against import Price, asked_for, compared, line, noise_of, prices, unpack, verdict


def price(*ratios, row="hooklab"): return Price("a step, to plain", row, [2.]*len(ratios), [2*r for r in ratios])


def test_a_price_has_changed_where_every_round_says_so_and_more_than_other_libraries():
    quiet = noise_of([price(1.02, .99, 1.01, row="plain"), price(.98, .97, .99, row="fastai, outputs"), price(9)])
    assert quiet == pytest.approx(1/.99)
    assert verdict(price(1.05, 1.02, 1.3), quiet) == "dearer"
    assert verdict(price(.8, .9, .7), quiet) == "cheaper"
    assert verdict(price(1.05, .99, 1.3), quiet) == verdict(price(1.005, 1.3, 1.2), quiet) == ""
    assert verdict(price(2, 2, 2, row="fastai"), quiet) == "" and noise_of([price(2)]) == 1
    assert not Price("raw hooks, two sums: first 30 steps", "mlp", [1], [1]).depends_on_hooklab


def test_what_is_no_bench_is_a_part_of_the_bench_before_it():
    assert asked_for(["hook", "first_steps", "mlp", "gcn", "stats"]) == [
        ("hook", []), ("first_steps", ["mlp", "gcn"]), ("stats", [])]
    assert asked_for(["misspelled", "hook"])[0] == ("misspelled", [])


def test_prices_are_read_from_what_a_bench_measures():
    figures = {"a step, to plain": {"plain": [1, .9, 1.1], "hooklab": [1.2, 1.1, 1.3]},
               "percent right": {"hooklab": [9, 8, 10]},
               "a record": {"megabytes": [41, 30, 50], "seconds": [2, 1, 3]}, "a table": [{"rows": 3}],
               "nothing": {"x": [0, 0, 0]}}
    assert list(prices(figures)) == [
        ("a step, to plain", "plain", 1), ("a step, to plain", "hooklab", 1.2), ("a record", "seconds", 2)]


def test_a_line_has_before_after_and_the_ratio():
    shown = line(price(1.1, 1.2, 1.3), 1.)
    assert shown.split() == ["hooklab", "2.000", "2.400", "1.200", "[1.100", "to", "1.300]", "dearer"]
    assert line(price(1.), 1.).split()[-1] == "1.000]"


def test_both_are_measured_in_turns(monkeypatch):
    seen = []
    def measured(tree, bench):
        seen.append("after" if tree == against.ROOT else "before")
        return {("t", "hooklab"): 3. if tree == against.ROOT else 2., ("t", f"only {seen[-1]}"): 1.}
    monkeypatch.setattr(against, "measured", measured)
    monkeypatch.setattr(against, "unpack", lambda commit, folder: None)
    found = compared("HEAD", "any", 3)
    assert seen == ["after", "before", "before", "after", "after", "before"]
    assert found == [Price("t", "hooklab", [2.]*3, [3.]*3)]


def test_the_package_of_a_commit(tmp_path):
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=against.ROOT, capture_output=True)
    if asked.returncode: pytest.skip("this is no git repository")
    unpack("HEAD", tmp_path)
    assert (tmp_path/"hooklab/__init__.py").is_file() and not (tmp_path/"hooklab").is_symlink()
    assert (tmp_path/"tests").resolve() == Path(against.ROOT/"tests").resolve()
