"""How often `hl.compare` is right on planted faults and on pairs equal but for arithmetic, and what others say.

    python -m tests.bench.bench_compare [--only KIND_OR_NAME …] [--faults | --equals] [--no-peers | --only-peers]

prints a line a case, then the figures; with --rows also what compare prints of a case that is not right. The command
`python -m tests.bench compare` keeps the figures. A share stands with its 95 % interval (Wilson). An exception counts
as a miss. All tools get the same models, ours first."""
import argparse
import contextlib
import copy
import gc
import math
import sys
import warnings
from dataclasses import dataclass, field
from statistics import median, quantiles

import torch

import hooklab as hl
from tests.bench.compare_cases import arithmetic, faults, ports
from tests.bench.compare_peers import peers
from tests.bench.measure import seconds, share

ours, long_pass = "hooklab", .05


@dataclass
class Answer:
    "What one tool said of one case, and what of it was right."
    same: bool | None = None
    first: str | None = None
    error: str = ""
    seconds: float = math.nan
    ratio: float = math.nan           # to the two plain passes
    passes: float = math.nan          # the two plain passes
    right: bool = False               # a fault: the first layer is one of those that are right
    named: bool = False               # a fault: some row that is no noise names one of them
    partners: tuple[int, int] = (0, 0)  # found and known
    wrong: dict = field(default_factory=dict)  # {name: (partners that are right, partners found)}
    compared: object = None


@dataclass
class Case:
    kind: str
    name: str
    fault: bool
    make: object
    expected: object = None
    answers: dict = field(default_factory=dict)


def passes(a, b, args, kwargs) -> float:
    "Seconds of the two plain passes, the least of three; inputs are copied, since a model may change them."
    def once():
        inputs = [copy.deepcopy((args, kwargs)) for _ in range(2)]
        state = torch.get_rng_state()
        took = seconds(lambda: [m(*x, **y) for m, (x, y) in zip((a, b), inputs)])
        torch.set_rng_state(state)
        return took
    buffers = [(t, t.clone()) for m in (a, b) for t in m.buffers()]
    try: return min(once() for _ in range(4))
    except Exception: return math.nan  # a candidate that cannot run, which a tool may say
    finally:
        with torch.no_grad():
            for t, was in buffers: t.copy_(was)


def partners(rows, known: dict) -> dict:
    "{name: (right partners, partners in the forward rows)} of the known names whose partner was not found."
    found = {name: set() for name in known}
    for row in rows:
        if row.a in found and not row.kind.startswith("backward"): found[row.a].add(row.b)
    return {name: (known[name], seen or {None}) for name, seen in found.items() if not (seen or {None}) <= known[name]}


def judge(case: Case, tool: str, a, b, args, kwargs, plain: float) -> Answer:
    "Runs one tool on the two models, whose plain passes take so many seconds."
    torch._dynamo.reset()
    gc.collect()
    said = Answer(passes=plain)

    def work():
        if tool == ours:
            c = said.compared = hl.compare(a, b, *args, **kwargs)
            said.same, said.first = c.same, c.first and (c.first.a if c.first.a is not None else c.first.b)
        else: said.same, said.first = peers[tool](a, b, args, kwargs)
    try: said.seconds = seconds(work)
    except Exception as error:
        said.same, said.first, said.error = None, None, f"{type(error).__name__}: {str(error)[:200]}"
    said.ratio = said.seconds/said.passes
    rows = [] if said.compared is None else said.compared.rows
    if case.fault:
        said.right = said.same is False and said.first in case.expected
        at_fault = [row for row in rows if row.kind.removeprefix("backward ").startswith(("fault", "only"))]
        said.named = said.right or any((row.b if row.a is None else row.a) in case.expected for row in at_fault)
    elif case.expected is not None and tool == ours:
        said.wrong = partners(rows, case.expected)
        if said.error: said.wrong = {name: (right, {"an exception"}) for name, right in case.expected.items()}
        said.partners = len(case.expected) - len(said.wrong), len(case.expected)
    return said


def cases(only=(), sort=None) -> list[Case]:
    found = [] if sort == "equals" else [Case(f.kind, f.name, True, f.make) for f in faults]
    if sort != "faults": found += [Case(e.kind, e.name, False, e.make) for e in (*arithmetic, *ports)]
    return [c for c in found if not only or any(x.lower() in f"{c.kind}: {c.name}".lower() for x in only)]


def verdict(case: Case, said: Answer) -> str:
    "right, or what was wrong, and what was said."
    told = said.error or {True: "same", None: "no answer", False: f"differ at {said.first!r}"}[said.same]
    if case.fault:
        good = "right" if said.right else "named" if said.named else "MISSED" if said.same is not False else "WRONG"
        return f"{good:6} {told}" if said.right else f"{good:6} {told}, expected {sorted(case.expected)}"
    good = "right" if said.same else "FAILED" if said.error else "silent" if said.same is None else "ALARM"
    found, known = said.partners
    return f"{good:6} {told}, partners {found} of {known}" if known else f"{good:6} {told}"


def run(found: list[Case], tools, show=None) -> list[Case]:
    "Has each tool judge each case. What is loaded at the first use of ours does not count."
    if ours in tools:
        with contextlib.suppress(Exception): hl.compare(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2), torch.zeros(1, 2))
    for case in found:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            *made, case.expected = case.make()
            plain = passes(*made)
            for tool in tools:
                case.answers[tool] = judge(case, tool, *made, plain)
                if show: show(case, tool)
                case.answers[tool].compared = None  # the models that it holds are let go
    return found


# Figures

def spread(values: list) -> list[float]:
    values = [v for v in values if not math.isnan(v)]
    if len(values) < 2: return [*values, *values, *values] if values else [math.nan]*3
    return [round(v, 3) for v in (median(values), *quantiles(values, n=4)[::2])]


def figures(found: list[Case], tools) -> dict:
    bad, good = [c for c in found if c.fault], [c for c in found if not c.fault]
    def each(of, among): return {tool: share([of(c.answers[tool]) for c in among]) for tool in tools}
    told = {
        "cases": {"faults": [len(bad)]*3, "equal pairs": [len(good)]*3},
        "faults: percent where the first layer is right": each(lambda s: s.right, bad),
        "faults: percent said to be the same": each(lambda s: s.same is True, bad),
        "faults: percent without an answer": each(lambda s: s.same is None, bad),
        "equal pairs: percent said to differ": each(lambda s: s.same is False, good),
        "equal pairs: percent without an answer": each(lambda s: s.same is None, good),
    }
    known = [c for c in good if c.expected is not None]
    if ours in tools:
        told["faults: percent where some row names the layer"] = {ours: share([c.answers[ours].named for c in bad])}
        pairs = [i < c.answers[ours].partners[0] for c in known for i in range(c.answers[ours].partners[1])]
        told["cases"] |= {"restructured pairs": [len(known)]*3, "known partners": [len(pairs)]*3}
        told["restructured pairs: percent of partners found"] = {
            ours: share(pairs), "all of a pair": share([not c.answers[ours].wrong and not c.answers[ours].error
                                                        for c in known])}
    times = {(tool, long): [s for c in found for t, s in c.answers.items() if t == tool and not s.error
                            and (s.passes >= long_pass) == long] for tool in tools for long in (True, False)}
    ratios = {tool: spread([s.ratio for s in times[tool, True]]) for tool in tools}
    told["times the two passes, where these take 50 ms or more"] = ratios
    told["seconds, where the passes take less"] = {tool: spread([s.seconds for s in times[tool, False]])
                                                   for tool in tools}
    most = {tool: max((s.seconds for s in times[tool, False]), default=math.nan) for tool in tools}
    told["seconds, where the passes take less, at most"] = {tool: [round(s, 3)]*3 for tool, s in most.items()}
    told["faults by kind"] = [by_kind(kind, [c for c in bad if c.kind == kind], tools, lambda s: s.right)
                              for kind in dict.fromkeys(c.kind for c in bad)]
    told["equal pairs by kind"] = [by_kind(kind, [c for c in good if c.kind == kind], tools, lambda s: s.same is True)
                                   for kind in dict.fromkeys(c.kind for c in good)]
    if ours in tools:
        told["misses"] = [f"{c.kind}: {c.name}: {verdict(c, c.answers[ours])}" for c in found
                          if not (c.answers[ours].right if c.fault else c.answers[ours].same)]
        told["partners not found"] = [f"{c.kind}: {c.name}: {name}: {show(right)}, found {show(seen)}" for c in known
                                      for name, (right, seen) in c.answers[ours].wrong.items()
                                      if not c.answers[ours].error]
    return told


def by_kind(kind, some, tools, good) -> dict:
    "How many of a kind each tool got right; of pairs with known partners, how many of these were found."
    row = {"kind": kind, "pairs": len(some)} | {tool: sum(good(c.answers[tool]) for c in some) for tool in tools}
    known = [c.answers[ours].partners for c in some if ours in c.answers and not c.fault and c.expected is not None]
    return row | ({"partners": sum(n for _, n in known), "found": sum(n for n, _ in known)} if known else {})


def show(names) -> str: return " or ".join(sorted("nothing" if x is None else repr(x) for x in names))


def measure():
    tools = [ours, *peers]
    return figures(run(cases(), tools), tools)


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_compare", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], help="parts of kinds or names")
    parser.add_argument("--faults", dest="sort", action="store_const", const="faults")
    parser.add_argument("--equals", dest="sort", action="store_const", const="equals")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--only-peers", action="store_true")
    parser.add_argument("--rows", action="store_true", help="print what compare prints, where it is not right")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    tools = [] if asked.only_peers else [ours]
    if not asked.no_peers: tools += peers

    def line(case, tool):
        said = case.answers[tool]
        title = f"{tool}: {case.kind}: {case.name}" if len(tools) > 1 else f"{case.kind}: {case.name}"
        print(f"{title}: {verdict(case, said)}  [{said.seconds:.2f} s, {said.ratio:.1f} passes]", flush=True)
        for name, (right, seen) in ({} if said.error else said.wrong).items():
            print(f"       {name}: {show(right)}, found {show(seen)}")
        if asked.rows and tool == ours and not (said.right if case.fault else said.same): print(said.compared)

    told = figures(run(cases(asked.only, asked.sort), tools, line), tools)
    for title, rows in told.items():
        if title in ("misses", "partners not found"): continue  # they stand above
        print(f"\n{title}")
        if isinstance(rows, list):
            for row in rows:
                print("  " + row["kind"] + ": " + ", ".join(f"{k} {v}" for k, v in row.items() if k != "kind"))
        else:
            for row, (middle, low, high) in rows.items():
                print(f"  {row:<18} {middle:8.2f}   [{low:.2f} to {high:.2f}]")


if __name__ == "__main__": sys.exit(main())
