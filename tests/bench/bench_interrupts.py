"""Ctrl-C: KeyboardInterrupt at each place of hooklab's code, each in a run of its own, and real signals.

    python -m tests.bench interrupts                   all places and 2,000 signals
    python -m tests.bench interrupts --signals 500     so many signals
    python -m tests.bench interrupts --tools find_nan summary

A place is an instruction where Python looks for signals, or a line. It is tried in the first two tools that come there,
because many places, such as those of books, belong to nearly all. At the border, before the first instruction of
hooklab or behind its last, no code of hooklab can act: `remove_hooks` may be needed. Signals may come in torch, too."""
import argparse
import tempfile
from collections import Counter
from pathlib import Path
from time import perf_counter

from tests.support.interrupts import Signals, expected_of, interrupted, places_of
from tests.support.worlds import TOOLS

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


def by_signals(tools: list[str], tmp: Path, n: int) -> tuple[list[dict], list[str]]:
    "What real signals leave."
    expected, took, wrong, came, needed, number = {}, {}, [], 0, 0, 0
    for tool in tools:
        expected[tool], start = expected_of(tool, tmp), perf_counter()
        expected_of(tool, tmp)
        took[tool] = perf_counter() - start
    with Signals() as signals:
        while came < n:
            tool = tools[number % len(tools)]
            number += 1
            outcome, inside = signals.interrupt(tool, tmp, expected[tool], most=1.2*took[tool])
            came += inside
            needed += inside and outcome.removed
            if outcome.wrong: wrong.append(f"{tool}: {'; '.join(outcome.wrong)}")
    return [{"signals": came, "needed remove_hooks": needed, "failed": len(wrong)}], wrong


def measure(*options):
    parser = argparse.ArgumentParser(prog="python -m tests.bench interrupts")
    parser.add_argument("--signals", type=int, default=2000)
    parser.add_argument("--tools", nargs="+", default=list(TOOLS), choices=list(TOOLS))
    asked = parser.parse_args(options)
    with tempfile.TemporaryDirectory() as folder:
        rows, wrong = places(asked.tools, Path(folder))
        timed, wrong_then = by_signals(asked.tools, Path(folder), asked.signals)
    return {"places where KeyboardInterrupt was raised, each in a run of its own": rows, "what was wrong there": wrong,
            "real signals at random moments": timed, "what was wrong after these": wrong_then}
