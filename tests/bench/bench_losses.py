"""What `compare_losses` finds in trainings with several losses: 40 with one planted fault each, and 20 healthy ones.

    python -m tests.bench losses [--part N] [--only PART_OF_NAME …] [--show]
    python -m tests.bench losses --plain [--part N] [--only …]

trains all cases of loss_cases.py, and keeps the figures in results/losses.json. --part takes every N-th, and --only
those whose kind, family or name has one of these words; such a part is not kept. --show prints each case with what was
found. --plain trains them without compare_losses: BAD is a plant whose claim does not hold, or a healthy training that
does not learn. What counts was fixed before the first run:
    right     a finding beyond a note is of the planted kind and has the planted losses, the loudest first; where two
              losses fight, the planted layer is among its layers
    layers    of all findings that losses fight, none names a layer in which their true cosine is above 0 in the median
    accused   a healthy training with a finding beyond a note
    exact     norms and cosines differ from those of torch.autograd.grad by at most 1e-6 (norms relative to the larger
              one); so does the sum of the losses' gradients from the gradient behind `backward`, relative to the sum of
              their norms, where it does so in a training without compare_losses (single precision is less exact where
              a thousand numbers of both signs are added); the loss is that of the plain expression bit for bit, and so
              are the weights at the end
    price     50 steps with every=50 take at most 1 + 0.75*losses/50 times as long as 50 without
Goals: all 40 right, no layer wrong, none of 20 accused, all exact."""
import argparse
import copy
import math
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations, permutations
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import hooklab as hl
from tests.bench import diagnose_nets as nets
from tests.bench.loss_cases import (
    CASES,
    DEAD,
    EVERY,
    FIGHT,
    OUTWEIGHS,
    Case,
    Own,
    layers_of,
    plain_sum,
    sampled,
    untrue,
)
from tests.bench.measure import in_rounds, share, spread

NOTE, SURE = "note", ("certain", "likely", "possible", "note")
SUM = "sum of gradients"


@dataclass
class Judged:
    "What was found in one training."
    case: Case
    own: Own
    findings: list[Any]
    wrong: list[str] = field(default_factory=list) # Layers in which losses are said to fight and do not
    gaps: dict[str, float] = field(default_factory=dict) # How far norms, cosines and the sum of gradients are off
    plain_gap: float = 0. # How far that sum is off without compare_losses
    same_loss: bool = True
    same_weights: bool = True
    failure: str = ""
    seconds: float = 0.

    @property
    def beyond_notes(self) -> list: return [one for one in self.findings if one.sure != NOTE]

    @property
    def of_kind(self) -> list: return [one for one in self.beyond_notes if one.what == self.case.kind]

    @property
    def of_losses(self) -> list:
        if self.case.kind == FIGHT: return [one for one in self.of_kind if {*one.losses} == {*self.case.losses}]
        return [one for one in self.of_kind if one.losses[:1] == self.case.losses]

    @property
    def is_right(self) -> bool:
        return any(self.case.kind != FIGHT or self.case.layer in one.layers for one in self.of_losses)

    @property
    def others(self) -> list: return [one for one in self.beyond_notes if one not in self.of_losses]

    @property
    def off(self) -> dict[str, float]:
        return {name: gap for name, gap in self.gaps.items() if gap > max(1e-6, self.plain_gap*(name == SUM))}

    @property
    def is_exact(self) -> bool: return self.same_loss and self.same_weights and not self.failure and not self.off

    def __str__(self):
        case = self.case
        said = "; ".join(f"{one.sure}: {one.what} {'/'.join(one.losses)}" +
                         (f" in {', '.join(one.layers)}" if one.layers else "") for one in self.findings)
        wrong = f" | wrong layers: {self.wrong}" if self.wrong else ""
        return (f"{case.kind or 'healthy'}: {case.family}: {case.name}{truth(self)} | "
                f"{self.failure or said or 'nothing'}{wrong}{'' if self.is_exact else self.inexact()}")

    def inexact(self) -> str:
        off = {name: f"{gap:.1e}" for name, gap in self.off.items()}
        return f" | not exact: {off}, same loss: {self.same_loss}, same weights: {self.same_weights}"


def truth(one: Judged) -> str:
    "The numbers behind a case."
    case, own = one.case, one.own
    if not own.measured(): return ""
    if case.kind == FIGHT:
        series = " ".join(f"{cosine:.2f}" for cosine in own.cosines_of(case.layer, case.losses))
        return f" ({case.layer}: cosines {series}; the weaker has {own.balance(case.layer, case.losses):.2f})"
    if case.kind == OUTWEIGHS: return f" ({case.losses[0]}: {own.outweighs(*case.losses):.0f} times the others)"
    if case.kind == DEAD: return f" ({case.losses[0]})"
    fights = [(median(cosines), layer, pair) for layer in own.layers() for pair in combinations(own.names(), 2)
              for cosines in [own.cosines_of(layer, pair)] if cosines and own.balance(layer, pair) > .2]
    cosine, layer, pair = min(fights, default=(math.nan, "", ()))
    name = max(own.names(), key=own.outweighs)
    return (f" (lowest cosine where the weaker has a fifth: {cosine:.2f} of {'/'.join(pair)} in {layer!r}; "
            f"{name}: {own.outweighs(name):.1f} times the others)")


def weights(model: nn.Module) -> list[torch.Tensor]: return [t.clone() for t in model.state_dict().values()]


def judge(case: Case) -> Judged:
    "Trains a case with `compare_losses`, then with autograd alone in the same steps, then with nothing."
    start, kept, pairs, totals, plain_totals = time.perf_counter(), [], [], {}, {}

    def watch(model):
        kept.append(hl.compare_losses(model, every=EVERY))
        return kept[-1]

    def see(model, step, losses): pairs.append([plain_sum(**losses).detach()])

    def after(model, step, loss):
        pairs[-1].append(loss.detach().clone())
        totals[step] = total(model)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try: model, failure = case.train(watch, see, after), ""
        except Exception as error: model, failure = None, f"{type(error).__name__}: {error}"
        parts = kept[0]
        if failure: return Judged(case, Own([]), [], failure=failure, same_weights=False)
        own = Own(parts.steps)
        case.train(see=own, after=lambda model, step, loss: plain_totals.update({step: total(model)}))
        plain = weights(case.train())
    found = Judged(case, own, parts.findings(), same_loss=all(torch.equal(*pair) for pair in pairs))
    found.same_weights = all(torch.equal(a, b) for a, b in zip(weights(model), plain, strict=True))
    found.wrong = wrong_layers(found)
    found.gaps = gaps(parts.rows(), own)
    found.gaps[SUM], found.plain_gap = (max(gap_of_sum(own, step, of[step]) for step in own.measured())
                                        for of in (totals, plain_totals))
    found.seconds = time.perf_counter() - start
    return found


def wrong_layers(found: Judged) -> list[str]:
    "Where losses are said to fight whose cosine is above 0 in the median, or which do not meet."
    fights = [one for one in found.beyond_notes if one.what == FIGHT]
    cosines = {(layer, *one.losses): found.own.cosines_of(layer, one.losses) for one in fights for layer in one.layers}
    return [f"{where}: {median(of or [1.]):.2f}" for where, of in cosines.items() if median(of or [1.]) > 0]


def total(model: nn.Module) -> list[torch.Tensor]:
    "The gradients that `backward` left."
    params = [p for of in layers_of(model).values() for p in of]
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in params]


def gap_of_sum(own: Own, step: int, found: list[torch.Tensor]) -> float:
    "How far the gradients of the losses, added, are from the gradient of their sum."
    both = zip(own.sums[step], found, strict=True)
    gap = math.sqrt(sum((a.double() - b.double()).square().sum().item() for a, b in both))
    return gap/max(sum(own.whole[step, name] for name in own.names()), 1e-38)


def gaps(rows: list[dict], own: Own) -> dict[str, float]:
    "How far norms and cosines are off; a row that is missing or too much is infinitely far."
    norms = {(row["step"], row["layer"], row["loss"]): row["norm"] for row in rows if row["norm"] != 0}
    cosines = {(row["step"], row["layer"], frozenset(pair)): cosine for row in rows
               for pair in permutations(own.names(), 2) if (cosine := row.get(f"cosine {', '.join(pair)}")) is not None}
    true_cosines = {(step, layer, frozenset(pair)): cosine for (step, layer, *pair), cosine in own.cosines.items()}
    true_norms = {key: norm for key, norm in own.norms.items() if norm != 0}
    return {"norms": gap(norms, true_norms, relative=True), "cosines": gap(cosines, true_cosines)}


def gap(found: dict, true: dict, relative: bool = False) -> float:
    if found.keys() != true.keys(): return math.inf
    off = [abs(found[key] - true[key])/(max(found[key], true[key]) if relative else 1) for key in true]
    return max(off, default=0.)


def chosen(part: int, only: list[str]) -> list[Case]:
    of = [one for one in CASES if not only or any(word in f"{one.kind} {one.family} {one.name}" for word in only)]
    return of[::part]


def plainly(of: list[Case]) -> int:
    "Prints a line for each without compare_losses; returns how many do not do what they claim."
    n_bad = 0
    for case in of:
        start, own = time.perf_counter(), Own()
        with torch.random.fork_rng(devices=[]): case.train(see=own)
        bad = untrue(case, own)
        n_bad += bool(bad)
        print(f"{'BAD' if bad else 'ok '} {time.perf_counter() - start:.2f} s {case.kind or 'healthy'}: {case.family}: "
              f"{case.name}{truth(Judged(case, own, []))}{': ' if bad else ''}{', '.join(bad)}", flush=True)
    print(f"{len(of)} trainings, {n_bad} of them BAD")
    return n_bad


def measure(*options: str) -> dict | None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench losses")
    parser.add_argument("--part", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[], help="parts of kinds, families or names")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--plain", action="store_true", help="without compare_losses: do the cases do what they claim?")
    asked = parser.parse_args(options)
    of = chosen(asked.part, asked.only)
    if asked.plain: sys.exit(plainly(of) > 0)
    found = []
    for case in of:
        found.append(judge(case))
        if asked.show: print(found[-1], flush=True)
    figures = figures_of(found)
    if asked.part == 1 and not asked.only: return figures | prices()
    for title, rows in figures.items(): print(title, *rows if isinstance(rows, list) else [rows], sep="\n  ")
    return None


def table(of: list[Judged], name: str) -> list[dict]:
    "How many are right, by kind or by family."
    groups = dict.fromkeys(getattr(one.case, name) for one in of)
    return [{"": group, "planted": len(these), "right": sum(one.is_right for one in these),
             "kind": sum(bool(one.of_kind) for one in these), "losses": sum(bool(one.of_losses) for one in these),
             "with a wrong layer": sum(bool(one.wrong) for one in these),
             "with other findings": sum(bool(one.others) for one in these)}
            for group in groups for these in [[one for one in of if getattr(one.case, name) == group]]]


def how_sure(planted: list[Judged], healthy: list[Judged]) -> list[dict]:
    "How many findings of each degree are those of the plant."
    rows = []
    for sure in SURE:
        of = [(one, each) for one in planted for each in one.findings if each.sure == sure]
        rows.append({"": sure, "of the plant": sum(each.what == one.case.kind and {*one.case.losses} <= {*each.losses}
                                                   for one, each in of), "of all in plants": len(of),
                     "in healthy trainings": sum(each.sure == sure for one in healthy for each in one.findings)})
    return rows


def figures_of(found: list[Judged]) -> dict:
    "The figures, in percent with their intervals, and tables of all kinds, families and misses."
    planted, healthy = ([one for one in found if bool(one.case.kind) == is_planted] for is_planted in (True, False))
    of_kinds = {kind: [one for one in planted if one.case.kind == kind] for kind in (FIGHT, OUTWEIGHS, DEAD)}
    names = [*dict.fromkeys(name for one in found for name in one.gaps)]
    return {
        "planted faults that are found, in percent": {
            "all": share([one.is_right for one in planted]),
            **{kind: share([one.is_right for one in of]) for kind, of in of_kinds.items()}},
        "healthy trainings that are accused, in percent": {"all": share([one.beyond_notes for one in healthy])},
        "trainings that are exact, in percent": {
            "norms, cosines, loss and weights": share([one.is_exact for one in found])},
        "the largest differences": [{name: f"{max(one.gaps.get(name, 0) for one in found):.2g}" for name in names}],
        "planted faults, by kind": table(planted, "kind"),
        "planted faults, by family": table(planted, "family"),
        "findings, by how sure they are": how_sure(planted, healthy),
        "not found": [str(one) for one in planted if not one.is_right],
        "wrong layers": [str(one) for one in found if one.wrong],
        "accused": [str(one) for one in healthy if one.beyond_notes],
        "other findings in plants": [str(one) for one in planted if one.others],
        "not exact": [str(one) for one in found if not one.is_exact]}


# The price

class Headed(nn.Module):
    "A trunk with several heads."
    def __init__(self, trunk: nn.Module, width: int, classes: int, heads: int):
        super().__init__()
        self.trunk, self.heads = trunk, nn.ModuleList(nn.Linear(width, classes) for _ in range(heads))

    def losses(self, x, y) -> dict[str, torch.Tensor]:
        h = self.trunk(x)
        of = [F.cross_entropy(head(h).flatten(0, -2), y.flatten()) for head in self.heads]
        return {f"loss{i}": .5**i*loss for i, loss in enumerate(of)}


def states() -> nn.Module:
    gpt = nets.Gpt(width=64, depth=3)
    gpt.head = nn.Identity()
    return gpt


def nets_of_price() -> dict[str, tuple[Callable, int, int, Callable, int]]:
    "Data, the width behind the trunk, the classes, how to make the trunk, and the size of a batch."
    def convolutions():
        return nn.Sequential(nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 48, 3, 2, 1), nn.ReLU(),
                             nn.Conv2d(48, 48, 3, 2, 1), nn.ReLU(), nn.Flatten())
    return {"an MLP of 6 layers": (nets.digits, 256, 10, lambda: nets.stack(64, *[256]*6), 128),
            "a CNN": (nets.images, 192, 10, convolutions, 64), "a GPT": (nets.text, 64, nets.words, states, 32)}


def stepper(model: Headed, parts: Callable, x, y, size: int, steps: int) -> Callable[[], None]:
    "So many training steps."
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    batch = sampled(0, size, x, y)

    def work():
        for _ in range(steps):
            loss = parts(**model.losses(*batch))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return work


def prices(every: int = 50, rounds: int = 9) -> dict:
    found = {}
    for name, (data, width, classes, trunk, size) in nets_of_price().items():
        (x, y), _ = data(0)
        rows = {}
        for heads in (2, 3, 4):
            torch.manual_seed(0)
            model = Headed(trunk(), width, classes, heads)
            twin = copy.deepcopy(model)
            with hl.compare_losses(twin, every=every) as parts:
                work = {f"{heads} losses": stepper(twin, parts, x, y, size, every)}
                measured = in_rounds(stepper(model, plain_sum, x, y, size, every), work, rounds)
            rows |= {f"{heads} losses": spread(measured[f"{heads} losses"]),
                     f"plain, {heads} losses": spread(measured["plain"])}
        found[f"{every} steps of {name} with compare_losses, to {every} without"] = rows
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    measure(*sys.argv[1:])
