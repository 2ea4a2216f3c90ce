"""What the tools say of healthy trainings with libraries from outside, written as the libraries' own tutorials train.

    python -m tests.bench libraries [--only NAME …] [--show]

It needs the extra `wild`; a program whose packages are missing is left out and counted. Each program runs in a process
of its own, as libraries keep global state. preflight is given what the program has: its loader or batch as it is, and
`call` where the loss is not `loss(output, target)`. An alarm is a finding beyond a note; refused is a batch or a model
that preflight does not take; changed are losses that are not bit for bit those of the run without a record.
The first look was taken with the code before anything was changed because of it; its figures stay in the results."""
import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import time
import warnings

from tests.bench.bars import RESULTS
from tests.bench.libraries import is_installed, library, names, packages_of
from tests.bench.measure import share

SEED, FIRST = 0, "first look, "


class Recorded:
    "A record in the place of `Plain`, which keeps the losses, too."
    def __init__(self):
        import hooklab as hl
        self.stats, self.losses = hl.ActivationStats.for_diagnosis(), []

    @contextlib.contextmanager
    def on(self, model, optimizer=None, **options):
        try: recording = self.stats.on(model, optimizer=optimizer, **options)
        except TypeError: recording = self.stats.on(model, **options)  # a library's own kind of optimizer
        with recording: yield self

    def step(self, loss=None):
        self.losses.append(None if loss is None else float(loss))
        self.stats.step(loss)


def said(findings) -> list[list]: return [[f.sure, f.what, list(f.layers)[:2], f.evidence[:160]] for f in findings]


def look_at(name: str) -> dict:
    "What the tools say of one program, in this process."
    import torch

    import hooklab as hl
    from tests.bench.libraries import Plain, seeded
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    program, row = library(name), {"program": name}

    def trained(record):
        seeded(SEED)
        program.train(program.build(), record)
        return record

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        seeded(SEED)
        parts, began = program.build(), time.process_time()
        try:
            found = hl.preflight(parts.model, parts.loss, parts.data, parts.optimizer, call=parts.call)
            row["preflight"] = said(found)
        except Exception as error: row["refused"] = f"{type(error).__name__}: {str(error)[:200]}"
        row["preflight seconds"] = round(time.process_time() - began, 1)
        plain = trained(Plain())
        try:
            record = trained(Recorded())
            row["changed"] = plain.losses != record.losses
            row["diagnose"] = said(hl.diagnose(record.stats))
        except Exception as error: row["failed"] = f"{type(error).__name__}: {str(error)[:200]}"
    return row


def look_apart(name: str) -> dict:
    command = [sys.executable, "-m", "tests.bench.bench_libraries", name]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"program": name, "failed": done.stderr.strip()[-300:]}


def alarms(row: dict) -> list[list]:
    return [f for tool in ("preflight", "diagnose") for f in row.get(tool, []) if f[0] != "note"]


def measure(*arguments: str) -> dict | None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench libraries")
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args(arguments)
    rows, missing = [], 0
    for name in names():
        if options.only and name not in options.only: continue
        if not all(map(is_installed, packages_of(name))):
            missing += 1
            continue
        rows.append(look_apart(name))
        if options.show: print(json.dumps(rows[-1]), flush=True)
    if options.only: return None
    known = json.loads((RESULTS/"libraries.json").read_text())["figures"]
    return {title: known[title] for title in known if title.startswith(FIRST)} | figures_of(rows, missing)


def figures_of(rows: list[dict], missing: int) -> dict:
    return {
        "libraries: percent": {
            "with an alarm": share([bool(alarms(row)) for row in rows]),
            "with a certain alarm": share([any(f[0] == "certain" for f in alarms(row)) for row in rows]),
            "refused": share(["refused" in row for row in rows]),
            "losses changed": share([row.get("changed", False) for row in rows])},
        "libraries: programs": [{"programs": len(rows), "not installed": missing,
                                 "failed": sum("failed" in row for row in rows)}],
        "libraries: seconds of preflight": [{"longest": max(row.get("preflight seconds", 0) for row in rows)}],
        "libraries: alarms": [f"{row['program']}: {', '.join(f'{f[0]}: {f[1]}' for f in alarms(row))}"
                              for row in rows if alarms(row)],
        "libraries: refused": [f"{row['program']}: {row['refused']}" for row in rows if "refused" in row],
        "libraries: failed": [f"{row['program']}: {row['failed']}" for row in rows if "failed" in row]}


if __name__ == "__main__": print("\n" + json.dumps(look_at(sys.argv[1])))
