"""How often `match_weights` finds the weights of a checkpoint that does not fit, and `compare` what changed in one.

    python -m tests.bench checkpoints [--part N] [--only WORD …] [--show] [--first COMMIT]
    python -m tests.bench.bench_checkpoints …    the same, and nothing is kept

runs all cases of checkpoint_cases.py and checkpoint_changes.py in all networks of checkpoint_nets.py, and keeps the
figures in results/checkpoints.json. --part takes every N-th network, and --only the cases whose kind or network has
one of these words: such a part is not kept, nor are figures where a library is missing. --show prints each miss as it
comes. --first keeps the figures as the first look, at this commit; they stay beside all later ones. What is right is
written in checkpoint_judges.py, and was fixed before the first run. An exception is a miss. Goals: 95 % of the easy
misfits, 85 % of the hard ones, none that is certain and wrong, equal checkpoints silent, all half loads found, and
95 % of the changes."""
import argparse
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec

import torch

import hooklab as hl
from tests.bench import bars, checkpoint_cases as cases, checkpoint_changes as changes, checkpoint_judges as judges
from tests.bench.checkpoint_nets import NETS
from tests.bench.measure import share

FIRST = "first look: "
EASY, HARD, EQUAL, HALF, CHANGE = "easy", "hard", "equal", "half load", "change"
LIBRARIES = {name.partition(" ")[0] for name in NETS}


@dataclass
class Judged:
    "What became of one case."
    group: str
    kind: str
    net: str
    right: bool = False
    counts: Counter = field(default_factory=Counter)  # of tensors
    said: str = ""                                     # what was wrong
    seconds: float = 0.

    def __str__(self): return f"{self.kind}, {self.net}: {self.said or 'right'}"


def few(names) -> str:
    names = list(names)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def judged_misfit(judged: Judged, model, checkpoint, truth: cases.Truth):
    names = list(model.state_dict())
    found = hl.match_weights(model, checkpoint)
    grade = judges.judge_misfit(truth, found, names)
    decided = [name for name in truth.right if name not in truth.undecidable]
    judged.right = grade.right and not grade.wrong_and_certain and not grade.unearned
    open_or_wrong = {*grade.left_open, *grade.wrong}
    judged.counts.update({
        "tensors": len(decided), "right": sum(name not in open_or_wrong for name in decided),
        "wrong": len(grade.wrong), "certain and wrong": len(grade.wrong_and_certain),
        "not said to be unused": len(grade.not_unused), "undecidable": len(truth.undecidable),
        "certain, right by luck": len(grade.unearned)})
    own = model.state_dict(keep_vars=True)
    ties = {id(own[name]) for name in truth.right if name not in open_or_wrong}
    judged.counts["of them tied to a tensor that is right"] = sum(
        name not in truth.right and id(own[name]) in ties for name in grade.wrong_and_certain)
    judged.counts.update(f"undecidable: {found.sure.get(name, 'left open')}" for name in truth.undecidable)
    judged.said = "; ".join(f"{words}: {few(given)}" for words, given in {
        "certain and wrong": grade.wrong_and_certain, "certain, right by luck": grade.unearned, "wrong": grade.wrong,
        "left open": grade.left_open, "not said to be missing": grade.unsaid}.items() if given)


def judged_equal(judged: Judged, model, state):
    found = hl.match_weights(model, state)
    silent = not found.steps and not found.notes
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with hl.explain_errors(model): model.load_state_dict(state)
    judged.right = judges.judge_equal(found, state) and silent and not warned
    judged.said = "" if judged.right else str(found)[:200]


def judged_half(judged: Judged, half: cases.Half, model, given):
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with hl.explain_errors(model): model.load_state_dict(given, strict=False)
    said = judges.judge_half(half, any("load_state_dict" in str(w.message) for w in warned))
    judged.right, judged.said = said == "right", "" if said == "right" else said


def judged_change(judged: Judged, a, b, truth: changes.Changed):
    found = hl.compare(a, b)
    names = judges.names_of_change(a, b, truth)
    verdict = judges.judge_change(truth, found, names)
    judged.right = verdict.right
    judged.counts.update({"tensors": len(names), "right": len(names) - len(verdict.rows) - len(verdict.numbers)})
    said = [f"{name} {relation}" for name, relation in verdict.rows.items()] + [f"{n}, number" for n in verdict.numbers]
    judged.said = "; ".join(filter(None, [few(said), "" if verdict.words else f"verdict: {found.verdict[:200]}"]))


def planted(nets: list[str], only: list[str]) -> Iterator[tuple]:
    "All cases of some networks: (what kind of case, its kind, network, what judges it, and with which arguments)."
    def those(make, kinds, net):
        kinds = [kind for kind in kinds if not only or any(word in f"{kind} {net}" for word in only)]
        return make([net], kinds) if kinds else ()
    for net in nets:
        for _, case, model, checkpoint, truth in those(cases.misfits, cases.MISFITS, net):
            yield HARD if case.hard else EASY, case.name, net, judged_misfit, (model, checkpoint, truth)
        for kind, model, state in those(equals, cases.EQUAL, net): yield EQUAL, kind, net, judged_equal, (model, state)
        for _, half, model, given in those(cases.halves, cases.HALVES, net):
            yield HALF, half.name, net, judged_half, (half, model, given)
        for _, kind, a, b, truth in those(changes.changes, changes.CHANGES, net):
            yield CHANGE, kind, net, judged_change, (a, b, truth)


def equals(nets: list[str], kinds: list[str]) -> Iterator[tuple]:
    for net in nets:
        model, state = cases.model_of(net), cases.state_of(net)
        for kind in kinds: yield kind, model, cases.EQUAL[kind](state, cases.generator_of(net))


def judged_cases(nets: list[str], only: list[str] = (), show: bool = False) -> list[Judged]:
    found = []
    for group, kind, net, judge, args in planted(nets, only):
        one, start = Judged(group, kind, net), time.process_time()
        try: judge(one, *args)
        except Exception as error: one.right, one.said = False, f"{type(error).__name__}: {str(error)[:200]}"
        one.seconds = time.process_time() - start
        found.append(one)
        if show and not one.right: print(one, f"({one.seconds:.2f} s)", flush=True)
    return found


def rows(found: list[Judged]) -> list[dict]:
    "A row for each kind: cases that are right as a whole, and what became of the tensors."
    table = []
    for kind in dict.fromkeys(one.kind for one in found):
        of = [one for one in found if one.kind == kind]
        counts = sum((one.counts for one in of), Counter())
        table.append({"": kind, "cases": len(of), "right": sum(one.right for one in of)}
                     | {f"tensors {key}".replace("tensors tensors", "tensors"): n for key, n in counts.items() if n})
    return table


def percent(found: list[Judged], group: str) -> dict[str, list[float]]:
    "Whole cases and tensors, in percent."
    of = [one for one in found if one.group == group]
    tensors, right = (sum(one.counts[key] for one in of) for key in ("tensors", "right"))
    whole = {f"{group}, whole cases": share([one.right for one in of])}
    return whole | ({f"{group}, tensors": share([True]*right + [False]*(tensors - right))} if tensors else {})


def figures_of(found: list[Judged]) -> dict:
    groups = {EASY: "easy misfits", HARD: "hard misfits", EQUAL: "equal checkpoints", HALF: "half loads",
              CHANGE: "changes between two checkpoints"}
    misfits = [one for one in found if one.group in (EASY, HARD)]
    counts = sum((one.counts for one in misfits), Counter())
    undecidable = {key.removeprefix("undecidable: "): n for key, n in counts.items() if key.startswith("undecidable: ")}
    figures = {"right, in percent": {k: v for group in groups for k, v in percent(found, group).items()},
               "tensors of all misfits": [{"": key, "tensors": counts[key]} for key in (
                   "tensors", "right", "wrong", "certain and wrong", "of them tied to a tensor that is right",
                   "certain, right by luck")],
               "tensors that nothing decides, and what was said of them": [
                   {"": sure, "tensors": n} for sure, n in sorted(undecidable.items())]}
    for group, title in groups.items():
        of = [one for one in found if one.group == group]
        figures[f"{title}, by kind"] = rows(of)
        figures[f"{title}, misses"] = [str(one) for one in of if not one.right]
    by_net = {net: [one for one in misfits if one.net == net] for net in dict.fromkeys(one.net for one in found)}
    figures["misfits, by network"] = [{"": net, "cases": len(of), "right": sum(one.right for one in of)}
                                      for net, of in by_net.items()]
    figures["CPU seconds"] = [{"": title, "seconds": round(sum(one.seconds for one in found if one.group == group), 1)}
                              for group, title in groups.items()]
    return figures


def measure(*options: str) -> dict | None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench checkpoints")
    parser.add_argument("--part", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[], help="parts of kinds or networks")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--first", metavar="COMMIT", default="")
    asked = parser.parse_args(options)
    warnings.simplefilter("ignore")
    missing = {library for library in LIBRARIES if not find_spec(library)}
    for library in missing: print(f"{library} is not there: its networks are left out")
    nets = [net for net in NETS if net.partition(" ")[0] not in missing][::asked.part]
    figures = figures_of(judged_cases(nets, asked.only, asked.show))
    if asked.part > 1 or asked.only or missing:
        for title, found in figures.items(): print(title, *found if isinstance(found, list) else [found], sep="\n  ")
        return None
    return figures | first_look(figures, asked.first)


def first_look(figures: dict, commit: str) -> dict:
    "The figures of the first look: these if it is one, and else those that were kept."
    if commit: return {FIRST + "commit": [commit]} | {FIRST + title: found for title, found in figures.items()}
    file = bars.RESULTS/"checkpoints.json"
    kept = json.loads(file.read_text())["figures"] if file.exists() else {}
    return {title: found for title, found in kept.items() if title.startswith(FIRST)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    measure(*sys.argv[1:])
