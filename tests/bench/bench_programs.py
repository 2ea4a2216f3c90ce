"""How often preflight, diagnose and find_nan name the cause in small programs with a fault that somebody really had.

    python -m tests.bench programs [--set open_half …] [--only PART_OF_NAME …] [--show]
    python -m tests.bench programs --first-look sixth_set    once: its figures go to results/first_looks.json
    python -m tests.bench.bench_programs --plain [--set …] [--only …]     the programs without hooklab
    TORCH_AUDIT=FOLDER python -m tests.bench programs     beside torch-audit, see diagnose_peers.py

The programs are in programs/, and what counts as right is fixed in programs/meaning.py. The whole is kept in
results/programs.json; a part (--set, --only) is printed only. --show prints the findings in full. What the tools said
of a set before any rule was written with it in view is its first look, and is never measured again.
A program does harm if its score is clearly worse than that of its repaired twin with each of two seeds; the others are
left out. Of those that do harm, each tool alone, all three one after the other, and what they say as one verdict
(`diagnose` of a record with the preflight before it and find_nan in it)
    cause    if some finding names it, notes too
    true     if some finding names it, or is a true symptom or place
    first    if the first finding that is no note is the cause, among the programs that have one
    nothing  if there is no finding at all
An alarm is a finding beyond a note on a repaired twin, on a healthy program, or on one of ten kinds of healthy runs
that look odd, each with three seeds (tests/support/odd_runs.py)."""
import argparse
import contextlib
import datetime
import json
import time
import warnings
from dataclasses import dataclass, field
from types import ModuleType

import torch
from torch.utils.data import DataLoader

import hooklab as hl
from tests.bench import diagnose_peers
from tests.bench.bars import RESULTS
from tests.bench.bench_diagnose import harm_seeds, harmed
from tests.bench.diagnose_runs import Nothing
from tests.bench.measure import share
from tests.bench.programs import HALVES, HEALTHY, OPENED, SETS, half_of, meaning, programs
from tests.support.odd_runs import RUNS, learns, looked_at

TOOLS = "preflight", "diagnose", "find_nan"
VERDICT = "one verdict"


class NanHunt:
    "`find_nan` in the place of a record."
    def __init__(self): self.error = None

    @contextlib.contextmanager
    def on(self, model, optimizer=None, **options):
        with hl.find_nan(model): yield self

    def step(self, loss=None): pass


class Together:
    "A record with `find_nan` in it."
    def __init__(self): self.stats = hl.ActivationStats.for_diagnosis()

    @contextlib.contextmanager
    def on(self, model, optimizer=None, **options):
        with self.stats.on(model, optimizer=optimizer, **options), hl.find_nan(model): yield self

    def step(self, loss=None): self.stats.step(loss)


@dataclass
class Said:
    "What the tools said of one program."
    program: ModuleType
    repaired: bool
    findings: dict[str, list[tuple[str, str, tuple[str, ...]]]] = field(default_factory=dict) # what, how sure, where
    errors: dict[str, str] = field(default_factory=dict)

    def of(self, tools: tuple[str, ...]) -> list[tuple[str, str, tuple[str, ...]]]:
        return [finding for tool in tools for finding in self.findings.get(tool, [])]

    def names_cause(self, tools) -> bool:
        causes = meaning.CAUSES[self.program.CAUSE]
        return any(what in causes for what, *_ in self.of(tools))

    def is_true(self, tools) -> bool:
        true, places = {*getattr(self.program, "TRUE", ())}, {*getattr(self.program, "PLACE", ())}
        return self.names_cause(tools) or any(what in true or places & {*where} for what, _, where in self.of(tools))

    def is_first(self, tools) -> bool | None: # None without a finding
        found = [what for what, sure, _ in self.of(tools) if sure != "note"]
        return found[0] in meaning.CAUSES[self.program.CAUSE] if found else None

    def alarms(self, tools) -> list[str]:
        return [f"{sure}: {what}" for what, sure, _ in self.of(tools) if sure != "note"]

    def __str__(self):
        said = [f"{sure}: {what}" for what, sure, _ in self.of(TOOLS)]
        if self.repaired: grade = "ALARM " if self.alarms(TOOLS) else "quiet "
        elif self.names_cause(TOOLS): grade = "cause "
        else: grade = "true  " if self.is_true(TOOLS) else "WRONG " if said else "silent"
        cause = f", {self.program.CAUSE}" if hasattr(self.program, "CAUSE") else ""
        verdict = ", ".join(f"{sure}: {what}" for what, sure, _ in self.of((VERDICT,)))
        failed = "".join(f"; {tool} failed: {error}" for tool, error in self.errors.items())
        return (f"{grade} {name_of(self.program)}{cause}: {', '.join(said) or 'nothing'}; "
                f"in one: {verdict or 'nothing'}{failed}")


def name_of(program: ModuleType) -> str: return program.__name__.rpartition(".")[2]


@contextlib.contextmanager
def alone(seed: int):
    "Random numbers begin with `seed`, and are as they were afterwards; nothing is printed or warned of."
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        yield


def score(program: ModuleType, seed: int, repaired: bool) -> float:
    with alone(seed): return float(program.train(program.build(repaired), Nothing()))


def asked(program: ModuleType, repaired: bool, seed: int = 0) -> Said:
    "What all three tools say, each and as one verdict."
    said = Said(program, repaired)
    for tool in ASK:
        try:
            with alone(seed): said.findings[tool] = ASK[tool](program, repaired)
        except Exception as error: said.errors[tool] = f"{type(error).__name__}: {str(error)[:150]}"
    return said


def as_rows(findings) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(f.what, f.sure, tuple(f.layers)) for f in findings]


def checked(parts) -> hl.Preflight:
    def loader(given):  # of a list, preflight would not know whether it is a batch
        return DataLoader(given, batch_size=None) if isinstance(given, list) else given
    data = loader(parts.data)
    return hl.preflight(parts.model, parts.loss, data, parts.optimizer, call=parts.call, train=data,
                        valid=loader(parts.valid))


def ask_preflight(program: ModuleType, repaired: bool): return as_rows(checked(program.build(repaired)))


def ask_diagnose(program: ModuleType, repaired: bool):
    parts, stats = program.build(repaired), hl.ActivationStats.for_diagnosis()
    program.train(parts, stats)
    return as_rows(hl.diagnose(stats))


def ask_find_nan(program: ModuleType, repaired: bool):
    try: program.train(program.build(repaired), NanHunt())
    except hl.NonFiniteError as error: return [("NaN or Inf", "certain", (error.layer,))]
    return []


def ask_for_verdict(program: ModuleType, repaired: bool):
    parts, record, before = program.build(repaired), Together(), None
    with contextlib.suppress(Exception): before = checked(parts)  # the row of preflight has its error
    with contextlib.suppress(hl.NonFiniteError): program.train(parts, record)
    return as_rows(hl.diagnose(record.stats, preflight=before))


def ask_audit(program: ModuleType, repaired: bool):
    record = diagnose_peers.Audit()
    program.train(program.build(repaired), record)
    return [(what, "likely", ()) for what in record.said]


ASK = {"preflight": ask_preflight, "diagnose": ask_diagnose, "find_nan": ask_find_nan, VERDICT: ask_for_verdict}
PEER = "torch-audit"
if diagnose_peers.installed(): ASK[PEER] = ask_audit

# Figures

def rates(said: list[Said], twins: list[Said], tools: tuple[str, ...]) -> dict:
    firsts = [one.is_first(tools) for one in said]
    return {
        "cause": share([one.names_cause(tools) for one in said]),
        "cause, symptom or place": share([one.is_true(tools) for one in said]),
        "first finding": share([first for first in firsts if first is not None]),
        "nothing": share([not one.of(tools) for one in said]),
        "twins with an alarm": share([bool(one.alarms(tools)) for one in twins]),
        "twins with a certain alarm": share([any(a.startswith("certain") for a in one.alarms(tools)) for one in twins]),
    }


def measure(*arguments: str) -> dict | None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench programs")
    parser.add_argument("--set", nargs="+", default=[*SETS, *HEALTHY], choices=[*SETS, *HEALTHY])
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--first-look", choices=[*SETS, *HEALTHY])
    options = parser.parse_args(arguments)
    if options.first_look: return look_first(options.first_look)
    figures = {}
    for each in options.set: figures |= figures_of(each, options.only, options.show)
    if {*options.set} == {*SETS, *HEALTHY} and not options.only: return figures | healthy()
    for title, rows in figures.items(): print(title, rows)
    return None


FIRST_LOOKS = RESULTS/"first_looks.json"


def look_first(which: str):
    known = json.loads(FIRST_LOOKS.read_text())
    if which in known: raise SystemExit(f"The first look at {which} was on {known[which]['date']}, and stays as it is.")
    known[which] = {"date": f"{datetime.date.today()}", "figures": figures_of(which, [], show=False)}
    FIRST_LOOKS.write_text(json.dumps(known, indent=1) + "\n")


def figures_of(name_of_set: str, only: list[str], show: bool) -> dict:
    chosen = [p for p in programs(name_of_set) if not only or any(part in name_of(p) for part in only)]
    look = of_healthy if name_of_set in HEALTHY else of_faults
    return look(name_of_set, chosen, show)


def columns() -> dict[str, tuple[str, ...]]:
    "The tools of each column: one, several one after the other, or all as one verdict."
    found = {tool: (tool,) for tool in TOOLS} | {"all three": TOOLS, VERDICT: (VERDICT,)}
    return found | {PEER: (PEER,)} if PEER in ASK else found


def of_healthy(name_of_set: str, chosen: list[ModuleType], show: bool) -> dict:
    "The alarms on healthy programs, by tool."
    said = []
    for program in chosen:
        said.append(asked(program, True))
        if show: print(said[-1], flush=True)
    figures = {f"{name_of_set}: {name}, percent": alarms_in(said, which) for name, which in columns().items()}
    figures[f"{name_of_set}: programs"] = [{"programs": len(chosen)}]
    figures[f"{name_of_set}: alarms"] = [str(one) for one in said if one.alarms(TOOLS)]
    figures[f"{name_of_set}: errors"] = [f"{name_of(one.program)}, {tool}: {error}" for one in said
                                     for tool, error in one.errors.items()]
    return figures


def alarms_in(said: list[Said], tools: tuple[str, ...]) -> dict:
    alarms = [one.alarms(tools) for one in said]
    return {"with an alarm": share([bool(found) for found in alarms]),
            "with a certain alarm": share([any(a.startswith("certain") for a in found) for found in alarms])}


def of_faults(name_of_set: str, chosen: list[ModuleType], show: bool) -> dict:
    harmful, harmless, said, twins, start = [], [], [], [], time.perf_counter()
    for program in chosen:
        fault, twin = ([score(program, seed, repaired) for seed in harm_seeds] for repaired in (False, True))
        if not harmed(fault, twin):
            harmless.append(name_of(program))
            continue
        harmful.append(program)
        said.append(asked(program, False))
        twins.append(asked(program, True))
        if show: print(said[-1], twins[-1], sep="\n", flush=True)
    took = time.perf_counter() - start
    print(f"{name_of_set}: {len(harmful)} programs that do harm, {len(harmless)} that do none, {took:.0f} s")
    figures = {f"{name_of_set}: {name}, percent": rates(said, twins, which) for name, which in columns().items()}
    areas = {area: [one for one in said if one.program.AREA == area] for area in meaning.AREAS}
    figures[f"{name_of_set}: by area"] = [by_area(area, found) for area, found in areas.items()]
    figures[f"{name_of_set}: programs"] = [{
        "programs": len(harmful), "without harm": len(harmless), "from 2020 on": sum(p.YEAR >= 2020 for p in harmful)}]
    if name_of_set in OPENED:  # what the tools say of single programs of another set is for nobody who writes rules
        figures[f"{name_of_set}: misses"] = [str(one) for one in said if not one.names_cause(TOOLS)]
        figures[f"{name_of_set}: alarms"] = [str(one) for one in twins if one.alarms(TOOLS)]
    return figures


SEEDS_OF_HEALTHY = range(3)


def healthy() -> dict:
    "The alarms on ten kinds of healthy runs that look odd, before and behind the training."
    alarms, left_out = [], []
    for name in RUNS:
        for seed in SEEDS_OF_HEALTHY:
            with alone(seed): before, after, losses = looked_at(name, seed)
            found = {f"{f.sure}: {f.what}" for f in (*before, *after) if f.sure != "note"}
            if learns(name, losses): alarms.append((f"{name}, seed {seed}", found))
            else: left_out.append(f"{name}, seed {seed}")
    return {
        "healthy: percent": {
            "runs with an alarm": share([bool(found) for _, found in alarms]),
            "runs with a certain alarm": share([any(a.startswith("certain") for a in found) for _, found in alarms])},
        "healthy: runs": [{"kinds": len(RUNS), "runs": len(alarms), "did not learn": len(left_out)}],
        "healthy: alarms": [f"{name}: {', '.join(sorted(found))}" for name, found in alarms if found]}


def by_area(area: str, said: list[Said]) -> dict:
    return {"area": area, "programs": len(said), "cause": sum(one.names_cause(TOOLS) for one in said),
            "true": sum(one.is_true(TOOLS) for one in said), "nothing": sum(not one.of(TOOLS) for one in said)}


def complaint(program: ModuleType, name_of_set: str) -> str:
    "What is wrong with the entries of a program; empty if nothing is."
    if name_of_set in HALVES and half_of(program.SOURCE) != name_of_set: return f"belongs to {half_of(program.SOURCE)}"
    if program.AREA not in meaning.AREAS: return f"no such area: {program.AREA}"
    if program.CAUSE not in meaning.CAUSES: return f"no such cause: {program.CAUSE}"
    return ""


def run_plainly(name_of_set: str, only: list[str]):
    for program in programs(name_of_set):
        name = name_of(program)
        if only and not any(part in name for part in only): continue
        if why := complaint(program, name_of_set): print(f"WRONG {name}: {why}")
        start = time.perf_counter()
        fault, twin = ([score(program, seed, repaired) for seed in harm_seeds] for repaired in (False, True))
        took = (time.perf_counter() - start)/4
        verdict = "harm " if harmed(fault, twin) else "NO HARM"
        print(f"{verdict} {name_of_set} {name}: {[round(s, 3) for s in fault]} beside {[round(s, 3) for s in twin]} "
              f"({took:.2f} s a run)", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_programs")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--set", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--only", nargs="+", default=[])
    options = parser.parse_args()
    torch.set_num_threads(1)
    for each in options.set: run_plainly(each, options.only)
