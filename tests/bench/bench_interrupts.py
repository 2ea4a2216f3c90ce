"""Ctrl-C: KeyboardInterrupt at each place of hooklab's code that each tool comes to, each in a run of its own, and real signals.

    python -m tests.bench interrupts                   all places and 2,000 signals
    python -m tests.bench interrupts --signals 500     so many signals
    python -m tests.bench interrupts --tools find_nan summary

A place is an instruction where Python looks for signals, or a line. At the border, before the first instruction of hooklab or behind
its last, no code of hooklab can act: there `remove_hooks` may be needed. Of a signal, which may come inside torch too, the table says
what was left on the model until then."""
import argparse
import tempfile
from pathlib import Path
from time import perf_counter

from tests.support.interrupts import Signals, expected_of, interrupted, places_of
from tests.support.worlds import TOOLS


def places(tools: list[str], tmp: Path) -> tuple[list[dict], list[str]]:
    "A row for each tool, and what was wrong."
    rows, wrong = [], []
    for tool in tools:
        found, expected = places_of(tool, tmp), expected_of(tool, tmp)
        outcomes = {place: interrupted(tool, place, tmp, expected) for place in found.seen}
        new = [f"{tool}, {place}: {'; '.join(outcome.wrong)}" for place, outcome in outcomes.items() if outcome.wrong]
        wrong += new
        rows.append({"tool": tool, "places": len(outcomes), "at the border": len(found.borders), "needed remove_hooks": sum(o.removed for o in outcomes.values()),
                     "failed": sum(bool(o.wrong) for o in outcomes.values())})
        print(rows[-1], *new, sep="\n", flush=True)  # it takes half an hour
    total = {"tool": "all"} | {key: sum(row[key] for row in rows) for key in list(rows[0])[1:]}
    return [*rows, total], wrong


def by_signals(tools: list[str], tmp: Path, n: int) -> tuple[list[dict], list[str]]:
    "What real signals leave."
    came = left = 0
    wrong, took = [], {}
    expected = {tool: expected_of(tool, tmp) for tool in tools}
    for tool in tools:
        start = perf_counter()
        expected_of(tool, tmp)
        took[tool] = perf_counter() - start
    with Signals() as signals:
        number = 0
        while came < n:
            tool = tools[number % len(tools)]
            number += 1
            outcome, inside = signals.interrupt(tool, tmp, expected[tool], most=1.2*took[tool])
            came += inside
            left += inside and outcome.removed
            if outcome.wrong: wrong.append(f"{tool}: {'; '.join(outcome.wrong)}")
    return [{"signals": came, "needed remove_hooks": left, "failed": len(wrong)}], wrong


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
