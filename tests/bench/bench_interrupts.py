"""Ctrl-C: KeyboardInterrupt at each place of hooklab's code, each in a run of its own, and real signals.

    python -m tests.bench interrupts                   all places and 2,000 signals
    python -m tests.bench interrupts --signals 500     so many signals
    python -m tests.bench interrupts --tools find_nan summary

A place is an instruction where Python looks for signals, or a line. It is tried in the first two tools that come there,
because many places, such as those of books, belong to nearly all. At the border, before the first instruction of
hooklab or behind its last, no code of hooklab can act: `remove_hooks` may be needed. Signals may come in torch, too.
The tools run for milliseconds on networks of microseconds, where most of the time is hooklab's own; so signals are sent
once more while each Linear layer takes 4 ms, as layers of real models do."""
import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

from torch import nn

from tests.support.interrupts import Signals, expected_of, interrupted, places_of
from tests.support.worlds import TOOLS, mlp

IN_TOOLS = 2


def places(tools: list[str], tmp: Path) -> tuple[list[dict], list[str]]:
    "A row for each tool, and what was wrong."
    rows, wrong, tried = [], [], Counter()
    for tool in tools:
        found, expected = places_of(tool, tmp), expected_of(tool, tmp)
        new = [place for place in found.seen if tried[place] < IN_TOOLS]
        tried.update(new)
        outcomes = {place: interrupted(tool, place, tmp, expected) for place in new}
        failed = [f"{tool}, {place}: {'; '.join(o.wrong)}" for place, o in outcomes.items() if o.wrong]
        wrong += failed
        rows.append({"tool": tool, "places": len(found.seen), "interrupted here": len(new),
                     "at the border": len(found.borders.intersection(new)),
                     "needed remove_hooks": sum(o.removed for o in outcomes.values()), "failed": len(failed)})
        print(rows[-1], *failed, sep="\n", flush=True)  # it takes a quarter of an hour
    whole = {"tool": "all", "places": len(tried)} | {key: sum(row[key] for row in rows) for key in list(rows[0])[2:]}
    return [*rows, whole], wrong


class Slow(nn.Linear):
    "A layer that takes its time."
    def forward(self, x):
        sleep(.004)
        return super().forward(x)


def slow_mlp() -> nn.Module:
    model = mlp()
    for m in model.modules():
        if type(m) is nn.Linear: m.__class__ = Slow
    return model


@contextmanager
def slow_layers() -> Iterator[list[str]]:
    "The tools that run on the plain network, on one with slow layers."
    tools = {name: tool for name, tool in TOOLS.items() if tool.build is mlp}
    for tool in tools.values(): tool.build = slow_mlp
    try: yield list(tools)
    finally:
        for tool in tools.values(): tool.build = mlp


def by_signals(layers: str, tools: list[str], tmp: Path, n: int) -> tuple[dict, list[str]]:
    "What real signals leave. Tools that take more than .4 s, such as `preflight` with slow layers, are left out."
    expected, took, wrong, came, needed, number = {}, {}, [], 0, 0, 0
    for tool in tools:
        expected[tool], start = expected_of(tool, tmp), perf_counter()
        expected_of(tool, tmp)
        took[tool] = perf_counter() - start
    tools = [tool for tool in tools if took[tool] < .4]
    with Signals() as signals:
        while came < n:
            tool = tools[number % len(tools)]
            number += 1
            outcome, inside = signals.interrupt(tool, tmp, expected[tool], most=1.2*took[tool])
            came += inside
            needed += inside and outcome.removed
            if outcome.wrong: wrong.append(f"{tool}: {'; '.join(outcome.wrong)}".replace(f"{tmp}/", "…/"))
    use = f"{1000*median(took.values()):.0f} ms"
    row = {"layers": layers, "a use takes, median": use, "signals": came, "needed remove_hooks": needed,
           "failed": len(wrong)}
    print(row, *wrong, sep="\n", flush=True)
    return row, [f"{layers}: {line}" for line in wrong]


def measure(*options):
    parser = argparse.ArgumentParser(prog="python -m tests.bench interrupts")
    parser.add_argument("--signals", type=int, default=2000)
    parser.add_argument("--tools", nargs="+", default=list(TOOLS), choices=list(TOOLS))
    asked = parser.parse_args(options)
    with tempfile.TemporaryDirectory() as folder:
        rows, wrong = places(asked.tools, Path(folder))
        quick, wrong_then = by_signals("of microseconds", asked.tools, Path(folder), asked.signals)
        with slow_layers() as tools: slow, wrong_there = by_signals("of 4 ms", tools, Path(folder), asked.signals)
    return {"places where KeyboardInterrupt was raised, each in a run of its own": rows, "what was wrong there": wrong,
            "real signals at random moments": [quick, slow], "what was wrong after these": wrong_then + wrong_there}
