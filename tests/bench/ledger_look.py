"""What the tools of one commit say of the programs of one set: a line of JSON for each program and each twin.

    python ledger_look.py CHECKOUT SET OUT

`bench_ledger` runs it in a process of its own, in a checkout of the commit of the set's first look, so that the
package, the programs and `meaning.py` are those of that day. Lines that OUT has already are not made again."""
import json
import os
import sys
import time
from pathlib import Path

tree, which, out = sys.argv[1], sys.argv[2], Path(sys.argv[3]).resolve()
sys.path.insert(0, tree)
os.chdir(tree)

import torch  # noqa: E402

import hooklab as hl  # noqa: E402
from tests.bench import bench_programs as bench  # noqa: E402
from tests.bench.programs import meaning, programs  # noqa: E402

HEALTHY = "healthy" in which


def graded(program, twin: bool, what: str, layers: list[str]) -> str:
    "What a finding is for this program, by the entries of that day."
    if twin: return "alarm"
    if what in meaning.CAUSES[program.CAUSE]: return "cause"
    is_true = what in getattr(program, "TRUE", ()) or {*getattr(program, "PLACE", ())} & {*layers}
    return "symptom or place" if is_true else "wrong"


def asked(program, repaired: bool) -> tuple[dict, dict]:
    "The findings of each tool as (what, sure, layers), and its errors. One training serves diagnose and the verdict."
    record, before, found, errors = hl.ActivationStats.for_diagnosis(), None, {}, {}

    def preflight():
        nonlocal before
        parts = program.build(repaired)
        for name in "data", "valid":  # the bench of that day took a tuple of batches for one batch
            if isinstance(getattr(parts, name), tuple): setattr(parts, name, list(getattr(parts, name)))
        before = bench.checked(parts)
        return bench.as_rows(before)

    def diagnose():
        program.train(program.build(repaired), record)
        return bench.as_rows(hl.diagnose(record))

    def find_nan(): return bench.ask_find_nan(program, repaired)
    def verdict(): return bench.as_rows(hl.diagnose(record, preflight=before))

    for ask in preflight, diagnose, find_nan, verdict:
        try:
            with bench.alone(0): found[ask.__name__] = ask()
        except Exception as error: errors[ask.__name__] = f"{type(error).__name__}: {str(error)[:150]}"
    return found, errors


def main():
    assert Path(hl.__file__).is_relative_to(tree), f"hooklab is {hl.__file__}"
    torch.set_num_threads(1)
    time.monotonic = time.perf_counter = time.process_time  # limits are as long on a busy machine as on a quiet one
    known = out.read_text().splitlines() if out.exists() else []
    done = {(row["program"], row["twin"]) for row in map(json.loads, known)}
    for program in programs(which):
        for twin in (True,) if HEALTHY else (False, True):
            name = bench.name_of(program)
            if (name, twin) in done: continue
            found, errors = asked(program, twin)
            rows = dict.fromkeys((tool, what, sure, graded(program, twin, what, layers))
                                 for tool, of in found.items() for what, sure, layers in of)
            row = {"program": name, "twin": twin, "findings": [*rows], "errors": errors}
            with open(out, "a") as f: f.write(json.dumps(row) + "\n")


main()
