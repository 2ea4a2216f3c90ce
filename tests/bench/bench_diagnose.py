"""How often `hl.diagnose` is right: on training runs with a planted fault, and on healthy ones that look odd.

    python -m tests.bench diagnose [--seed N] [--sets first second third] [--only PART_OF_NAME …] [--quick] [--show]
    python -m tests.bench.bench_diagnose --plain [--sets …] [--only …]

prints what was said of each run, then the figures. The whole is kept in results/diagnose.json; a part (--sets, --only),
or a run without torch-audit and without measuring the harm (--quick), is printed only; --again is quick, and is kept
with what was measured of these two before. --show prints the findings in full. --plain runs all
without hooklab, and shows each fault beside its twin, and each healthy run beside the bound that it has to keep. The
runs are in diagnose_cases.py.
A run with a fault counts as
    cause     if some finding is one of those that lead straight to the line to change,
    relevant  if some finding is that, or a true consequence of the fault,
    first     if the first finding is the cause, among the runs that have one; notes count where there is nothing else.
Notes name causes too, and are no alarms. An alarm is a finding on a healthy run; one that with these random numbers
does not keep its bound is not healthy, and left out. An exception is a miss, or an alarm."""
import argparse
import json
import sys
import time
import warnings
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

import hooklab as hl
from tests.bench import diagnose_peers
from tests.bench.diagnose_cases import Case, sets
from tests.bench.diagnose_runs import Nothing
from tests.bench.measure import share

harm_seeds = 0, 1
goals = {"cause": 80, "harmed: cause or symptom": 93, "all: cause or symptom": 90, "first finding": 85,
         "false alarms, certain": 1, "false alarms, any": 3}


@dataclass
class Verdict:
    "What was said of one run, in order, and what of it is right."
    case: Case
    seed: int
    said: list[tuple[str, str]] = field(default_factory=list)  # (id, how sure)
    score: float = float("nan")
    seconds: float = 0.
    error: str = ""
    findings: list = field(default_factory=list, repr=False)

    @property
    def ids(self) -> list[str]: return [what for what, _ in self.said]

    @property
    def cause(self) -> bool: return not self.case.causes.isdisjoint(self.ids)

    @property
    def relevant(self) -> bool: return self.cause or not self.case.symptoms.isdisjoint(self.ids)

    @property
    def first(self) -> bool | None:
        "Whether the first finding is the cause; None without one."
        order = [what for what, sure in self.said if sure != "note"] or self.ids
        return order[0] in self.case.causes if order else None

    @property
    def alarms(self) -> list[str]:
        found = [f"{sure}: {what}" for what, sure in self.said if sure != "note"]
        return found or ([f"certain: {self.error}"] if self.error else [])

    @property
    def right(self) -> bool: return not self.alarms if self.case.healthy else self.cause

    def __str__(self):
        said = self.error or ", ".join(f"{sure}: {what}" for what, sure in self.said) or "nothing"
        if self.case.healthy: grade = "ALARM " if self.alarms else "right "
        else: grade = "cause " if self.cause else "true  " if self.relevant else "WRONG " if self.said else "silent"
        wanted = "" if self.right else f"; wanted {' or '.join(sorted(self.case.causes)) or 'nothing'}"
        return f"{grade} {self.case.kind}: {self.case.name}: {said}{wanted}"


def judge(case: Case, seed: int = 0) -> Verdict:
    "Trains one run with a record, and asks what it says. The random state is left as it was."
    verdict, start = Verdict(case, seed), time.perf_counter()
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        stats = hl.ActivationStats.for_diagnosis()  # the record that the pages on diagnosis show
        try:
            verdict.score = case.run(stats, seed)
            verdict.findings = list(hl.diagnose(stats))
        except Exception as error: verdict.error = f"{type(error).__name__}: {str(error)[:200]}"
    verdict.said = [(finding.what, finding.sure) for finding in verdict.findings]
    verdict.seconds = time.perf_counter() - start
    return verdict


def audited(case: Case, seed: int = 0) -> Verdict:
    "The same with torch-audit."
    verdict, record = Verdict(case, seed), diagnose_peers.Audit()
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        try: verdict.score = case.run(record, seed)
        except Exception as error: verdict.error = f"{type(error).__name__}: {str(error)[:200]}"
    verdict.said = [(what, "likely") for what in record.said]
    return verdict


def scores(run, known: dict) -> list[float]:
    "How good a run is without hooklab, with each of two seeds; what is known is not run again."
    parts = (run.func, str(sorted(map(str, run.keywords.items())))) if isinstance(run, partial) else run
    if parts not in known:
        with torch.random.fork_rng(devices=[]): known[parts] = [run(Nothing(), seed) for seed in harm_seeds]
    return known[parts]


def harmed(fault: list[float], twin: list[float]) -> bool:
    """Whether a run is clearly worse than its twin: with every seed its score is no number, or a quarter and 0.03
    above that of the twin."""
    return all(not f < max(1.25*t, t + .03) for f, t in zip(fault, twin))


def does_harm(case: Case, known: dict) -> bool: return harmed(scores(case.run, known), scores(case.twin, known))


def run_plainly(cases: list[Case]):
    "Prints a line a case: BAD is a fault without harm, or a healthy run beyond its bound."
    known = {}
    for case in cases:
        start = time.perf_counter()
        found = scores(case.run, known)
        took = (time.perf_counter() - start)/len(harm_seeds)
        if case.twin is None: good, beside = all(s <= case.bound for s in found), f"at most {case.bound}"
        else: good, beside = does_harm(case, known), f"beside {[round(s, 3) for s in scores(case.twin, known)]}"
        shown = [round(s, 3) for s in found]
        print(f"{'   ' if good else 'BAD'} {title(case)}: {shown} {beside} ({took:.2f} s)", flush=True)


# Figures

def rates(bad: list[Verdict], good: list[Verdict], harm: dict[str, bool]) -> dict:
    "The figures of one tool, in percent with their intervals."
    reach = [v for v in bad if v.case.reach]
    hurt = [v for v in reach if harm.get(title(v.case), True)]
    firsts = [v.first for v in reach if v.first is not None]
    return {
        "all: cause": share([v.cause for v in reach]), "all: cause or symptom": share([v.relevant for v in reach]),
        "harmed: cause": share([v.cause for v in hurt]), "harmed: cause or symptom": share([v.relevant for v in hurt]),
        "first finding": share(firsts), "anything said": share([bool(v.said) for v in reach]),
        "false alarms, certain": share([any(a.startswith("certain") for a in v.alarms) for v in good]),
        "false alarms, any": share([bool(v.alarms) for v in good]),
    }


def title(case: Case) -> str: return f"{case.kind}: {case.name}"


def by_kind(kind: str, found: list[Verdict]) -> dict:
    firsts = [v.first for v in found if v.first is not None]
    return {"kind": kind, "runs": len(found), "cause": sum(v.cause for v in found),
            "cause or symptom": sum(v.relevant for v in found), "first": sum(firsts), "of": len(firsts),
            "anything said": sum(bool(v.said) for v in found)}


def alarms_of(kind: str, found: list[Verdict]) -> dict:
    return {"kind": kind, "runs": len(found), "any": sum(bool(v.alarms) for v in found),
            "certain": sum(any(a.startswith("certain") for a in v.alarms) for v in found)}


def kinds(found: list[Verdict]) -> list[str]: return list(dict.fromkeys(v.case.kind for v in found))


def figures(bad: list[Verdict], good: list[Verdict], harm: dict[str, bool], peer=()) -> dict:
    reach, beyond = [v for v in bad if v.case.reach], [v for v in bad if not v.case.reach]
    told = {
        "cases": {"faults": [len(reach)]*3, "kinds": [len(kinds(reach))]*3, "out of reach": [len(beyond)]*3,
                  "healthy": [len(good)]*3, "harmless": [sum(not harm.get(title(v.case), True) for v in reach)]*3,
                  "seed": [(bad or good)[0].seed]*3},
        "hooklab, percent": rates(bad, good, harm),
    }
    if peer: told["torch-audit, percent"] = rates(*peer, harm)
    told["faults by kind"] = [by_kind(k, [v for v in reach if v.case.kind == k]) for k in kinds(reach)]
    told["out of reach"] = [by_kind(k, [v for v in beyond if v.case.kind == k]) for k in kinds(beyond)]
    told["alarms by kind of healthy run"] = [alarms_of(k, [v for v in good if v.case.kind == k]) for k in kinds(good)]
    told["wrong things said of a fault"] = [
        f"{what}: {n}" for what, n in sorted(wrong(reach).items(), key=lambda item: -item[1])]
    told["misses"] = [str(v) for v in reach if not v.cause]
    told["not first"] = [str(v) for v in reach if v.cause and not v.first]
    told["alarms"] = [str(v) for v in good if v.alarms]
    told["harmless"] = [title(v.case) for v in reach if not harm.get(title(v.case), True)]
    return told


def wrong(found: list[Verdict]) -> dict[str, int]:
    "How often each id was said of a fault that it neither names nor follows from, at any level above a note."
    counts: dict[str, int] = {}
    for v in found:
        for what, sure in v.said:
            if sure != "note" and what not in v.case.causes | v.case.symptoms: counts[what] = counts.get(what, 0) + 1
    return counts


def measure(*arguments: str) -> dict | None:
    "Runs the bench; None where only a part of it was run, which is printed and not kept."
    parser = argparse.ArgumentParser(prog="python -m tests.bench diagnose")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sets", nargs="+", default=[*sets], choices=[*sets])
    parser.add_argument("--only", nargs="+", default=[], help="parts of kinds or names")
    parser.add_argument("--quick", action="store_true", help="the harm as it was measured last, no torch-audit")
    parser.add_argument("--again", action="store_true", help="harm and torch-audit as they were measured last; kept")
    parser.add_argument("--show", action="store_true", help="the findings in full")
    parser.add_argument("--plain", action="store_true", help="the runs without hooklab, beside their twins and bounds")
    asked = parser.parse_args(arguments)
    asked.quick |= asked.again
    harm, told, last = known_harm() if asked.quick else {}, {}, last_figures()
    for name in asked.sets:
        chosen = [c for c in sets[name]() if not asked.only or any(p.lower() in title(c).lower() for p in asked.only)]
        if asked.plain: run_plainly(chosen)
        if asked.plain or not chosen: continue
        print(f"\nThe {name} set, seed {asked.seed}")
        found = figures_of_set(chosen, asked, harm)
        told.update(found if name == "first" else {f"{name} set: {what}": rows for what, rows in found.items()})
    if asked.plain: return None
    if asked.again: told |= {what: rows for what, rows in last.items() if "torch-audit" in what}
    return told if set(asked.sets) == {*sets} and not asked.only and (asked.again or not asked.quick) else None


def last_figures() -> dict:
    results = Path(__file__).parent/"results"/"diagnose.json"
    return json.loads(results.read_text())["figures"] if results.exists() else {}


def known_harm() -> dict[str, bool]:
    "The runs that their fault did not harm when that was measured last."
    return {run: False for what, runs in last_figures().items() if what.endswith("harmless") for run in runs}


def figures_of_set(cases: list[Case], asked: argparse.Namespace, harm: dict[str, bool]) -> dict:
    "Runs these cases, prints what was said of each, and returns their figures."
    known, start, verdicts = {}, time.perf_counter(), []
    for case in cases:
        verdicts.append(judge(case, asked.seed))
        if not asked.quick and not case.healthy: harm[title(case)] = does_harm(case, known)
        print(verdicts[-1], "" if case.healthy or harm.get(title(case), True) else "(does no harm)", flush=True)
        if asked.show: print(*[f"       {f}" for f in verdicts[-1].findings], sep="\n")
        if case.healthy and not verdicts[-1].score <= case.bound: print(f"       did not train: {verdicts[-1].score}")
        verdicts[-1].findings = []
    took = time.perf_counter() - start
    bad = [v for v in verdicts if not v.case.healthy]
    good = [v for v in verdicts if v.case.healthy and v.score <= v.case.bound]  # not each seed gets there
    peer = ()
    if not asked.quick and diagnose_peers.installed():
        audits = [audited(v.case, asked.seed) for v in verdicts]
        fine = [v for v in audits if v.case.healthy and v.score <= v.case.bound]
        peer = [v for v in audits if not v.case.healthy], fine
    told = figures(bad, good, harm, peer)
    told["did not train"] = [str(v) for v in verdicts if v.case.healthy and v not in good]
    print(f"\n{len(verdicts)} runs in {took:.0f} s, slowest {max(v.seconds for v in verdicts):.1f} s: "
          f"{title(max(verdicts, key=lambda v: v.seconds).case)}")
    for name in ("hooklab, percent", "cases"):
        print(name, *[f"{k} {v[0]:g}" for k, v in told[name].items()], sep="\n  ")
    print("by kind (runs, cause, cause or symptom, first)")
    for row in told["faults by kind"]:
        print(f"  {row['kind']}: {row['runs']}, {row['cause']}, {row['cause or symptom']}, "
              f"{row['first']} of {row['of']}")
    print("wrong things said of a fault", *told["wrong things said of a fault"], sep="\n  ", flush=True)
    return told


if __name__ == "__main__":
    torch.set_num_threads(1)
    measure(*sys.argv[1:])
