"""How often `hl.check_resume` names the state that a checkpoint lacks, on the loops of resume_loops.

    python -m tests.bench resume [--only LOOP …] [--show]

Each loop resumes from its complete checkpoint and from one without each of its states; loops that differ by themselves
resume from the complete one only, and the three loops of libraries from one complete and one as the library writes it.
What counts as right is in resume_loops; an exception is a miss. The trainers need transformers, lightning and
accelerate, and are left out without them. Two misses are no faults of what is said, and are counted all the same:

- differs_by_a_global_count: check_resume puts global variables back between runs, as a new process would, so the loop
  is the same each time, and its global count is a state that the checkpoint lacks;
- own_generator without `done`: the generator does differ after the load, as the run has not skipped its batches.

The first look was taken with the code before anything was changed because of it; its figures stay in the results."""
import argparse
import functools
import json
import logging
import os
import tempfile
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import torch

import hooklab as hl
from tests.bench.bars import RESULTS
from tests.bench.measure import share
from tests.bench.resume_loops import (
    OF_ANY,
    TRAINERS,
    contains,
    differs,
    judged,
    loops,
    loops_that_differ,
    name_of,
    pairs,
    trainers,
)

FIRST = "first look, "


@dataclass
class Row:
    "What check_resume said of one checkpoint, and what of it was right."
    loop: str
    left_out: tuple[str, ...] = ()  # of the checkpoint
    kind: str = "complete"          # or "state", "silent", "differs", "trainer", "complete trainer"
    findings: list[str] = field(default_factory=list)
    named: tuple[str, ...] = ()     # the states that the findings name
    others: list[str] = field(default_factory=list)  # findings that name something else
    same: bool = False
    differs: bool = False           # the loop is said to differ by itself
    seconds: float = 0.
    error: str = ""

    @property
    def is_right(self) -> bool:
        if self.error or self.others: return False
        if self.kind in ("complete", "complete trainer"): return self.same
        if self.kind == "differs": return self.differs
        return self.kind == "silent" or self.named == self.left_out

    def __str__(self):
        left_out = f" without {', '.join(self.left_out)}" if self.left_out else ""
        said = self.error or " ".join(self.findings) or ("it differs by itself" if self.differs else "nothing")
        return f"{self.loop}{left_out}: {said}"


def check(row: Row, *four, warm: int, steps: int) -> Row:
    "Fill in what check_resume says."
    began = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = hl.check_resume(*four, warm=warm, steps=steps)
        row.findings, row.same, row.differs = [f.text for f in found], found.same, found.differs_by_itself
    except Exception as error: row.error = f"{type(error).__name__}: {str(error)[:200]}"
    row.seconds = round(time.process_time() - began, 2)
    return row


def ask(loop: ModuleType, state: str = "") -> Row:
    "What is said of a loop whose checkpoint is complete, or lacks a state."
    save, kind = loop.save, "differs" if differs(loop) else "complete"
    if state:
        save = functools.partial(loop.save, without=(state,))
        kind = "silent" if state in getattr(loop, "SILENT", ()) else "state"
    row = Row(name_of(loop), (state,) if state else (), kind)
    check(row, loop.make, loop.step, save, loop.load, warm=loop.WARM, steps=loop.STEPS)
    row.others = row.findings
    if state:
        is_named, row.others = judged(loop, state, row.findings)
        row.named = (state,) if is_named else ()
    return row


def epoch(run) -> list[float]:
    "An epoch of the loop with accelerate, which saves between epochs."
    (module,) = [module for module in trainers() if name_of(module) == "accelerate_loop"]
    return module.epoch(run)


def ask_trainer(module: ModuleType, complete: bool) -> Row:
    row = Row(name_of(module), () if complete else (*module.LOST,), "complete trainer" if complete else "trainer")
    with tempfile.TemporaryDirectory() as folder:
        make = functools.partial(module.trainer, Path(folder), complete)
        warm, steps = getattr(module, "SAVED_AT", 5), min(getattr(module, "STEPS", 5), 5)
        if row.loop == "hf_trainer": four = hl.transformers_run(make)
        elif row.loop == "lightning_trainer": four = hl.lightning_run(make)
        else: four, warm, steps = hl.accelerate_run(make, epoch), 1, 1
        check(row, *four, warm=warm, steps=steps)
    row.named = tuple(state for state, names in module.LOST.items() if any(contains(t, names) for t in row.findings))
    allowed = [name for names in module.LOST.values() for name in names] if not complete else []
    row.others = [text for text in row.findings if not contains(text, [*allowed, *OF_ANY])] if allowed else row.findings
    return row


def rows_of(only=()) -> list:
    "Functions, each of which gives a row."
    asked = [functools.partial(ask, loop) for loop in loops()]
    asked += [functools.partial(ask, loop, state) for loop, state in pairs()]
    asked += [functools.partial(ask, loop) for loop in loops_that_differ()]
    try: asked += [functools.partial(ask_trainer, module, whole) for module in trainers() for whole in (True, False)]
    except ModuleNotFoundError as error: print(f"without {', '.join(TRAINERS)}: {error}")
    return [one for one in asked if not only or name_of(one.args[0]) in only]


def measure(*arguments: str) -> dict | None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench resume")
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args(arguments)
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    rows = []
    for one in rows_of(options.only):
        rows.append(one())
        if not options.show: continue
        print("right" if rows[-1].is_right else "WRONG", rows[-1], f"[{rows[-1].seconds} s]", flush=True)
    if options.only: return None
    kept = RESULTS/"resume.json"
    known = json.loads(kept.read_text())["figures"] if kept.exists() else {}
    return {title: known[title] for title in known if title.startswith(FIRST)} | figures_of(rows)


def figures_of(rows: list[Row]) -> dict:
    def of(*kinds): return [row for row in rows if row.kind in kinds]
    states, differing, libraries = of("state"), of("differs"), of("trainer")
    named = [state in row.named for row in libraries for state in row.left_out]
    return {
        "resume: percent": {
            "state named": share([bool(row.named) for row in states]),
            "nothing else named": share([not row.others and not row.error for row in of("state", "silent")]),
            "complete silent": share([row.is_right for row in of("complete")]),
            "differs, said": share([row.differs for row in differing]),
            "differs, nothing accused": share([not row.findings and not row.error for row in differing])},
        "resume: percent, trainers": {
            "state named": share(named),
            "nothing else named": share([not row.others and not row.error for row in libraries]),
            "complete silent": share([row.is_right for row in of("complete trainer")])} if libraries else {},
        "resume: cases": [{"loops": len(of("complete")), "states": len(states), "silent states": len(of("silent")),
                           "loops that differ": len(differing), "trainers": len(libraries),
                           "failed": sum(bool(row.error) for row in rows)}],
        "resume: seconds": [{"longest": max(row.seconds for row in rows),
                             "in all": round(sum(row.seconds for row in rows))}],
        "resume: misses": [str(row) for row in rows if not row.is_right]}
