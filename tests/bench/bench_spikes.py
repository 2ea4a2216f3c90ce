"""How often a spike is reported: in runs where one step is spoiled, and in healthy runs with noisy losses.

    python -m tests.bench spikes [--part N] [--show]

trains all runs of spike_cases.py, prints what was reported, and keeps it in results/spikes.json; --part takes every
N-th run and keeps nothing. What counts was fixed before the first run:
    harmful   in the step in which the plant shows, the loss or the norm of all gradients (before clipping) is not
              finite, or above all of ten runs without the plant by more than these ten differ in that step
    reported  `stats.spikes()` has a spike that begins in that step
    false     a spike that begins before the plant, or in a healthy run"""
import argparse
import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

import hooklab as hl
from tests.bench import spike_cases as cases
from tests.bench.measure import share

TWINS = 10
Series = dict[str, list[float]]  # the loss and the norm of each step


def recorded(run: Callable, seed: int) -> hl.ActivationStats:
    "A record of a run; one that ends with an error is as long as it went."
    stats = hl.ActivationStats()
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        try: run(stats, seed)
        except (ValueError, RuntimeError): stats.remove()  # such as a check of numbers that are NaN
    return stats


def series(stats: hl.ActivationStats) -> Series:
    norm = stats.log.values("grad_norm_unclipped")
    return {"loss": stats.log.values("loss").tolist(), "norm": norm.tolist()}


@dataclass
class Planted:
    "What was reported of a run in which one step was spoiled."
    kind: str
    way: str
    seed: int
    shows: int # The step in which the plant shows
    harms: bool
    reported: list[int] # The steps of spikes
    steps: int # How many there were

    @property
    def is_found(self) -> bool: return self.shows in self.reported

    @property
    def before(self) -> int: return sum(step < self.shows for step in self.reported)


def is_outside(found: Series, twins: list[Series], step: int) -> bool:
    "Is the loss or the norm above those of all twins in this step, by more than these differ?"
    for name in ("loss", "norm"):
        if step >= len(found[name]): continue
        value, others = found[name][step], [twin[name][step] for twin in twins]
        if not math.isfinite(value): return True
        if value > max(others) + (max(others) - min(others)): return True
    return False


def planted(part: int) -> Iterable[Planted]:
    "All plants, or every so many."
    number = -1
    for way in cases.WAYS:
        twins = None
        for kind, plant_at in cases.KINDS.items():
            for seed in range(cases.MORE_SEEDS.get(kind, cases.SEEDS)) if cases.fits(kind, way) else ():
                number += 1
                if number % part: continue
                twins = twins or [series(recorded(cases.run_of(way), 100 + i)) for i in range(TWINS)]
                plant = plant_at(cases.step_of(way, kind, seed))
                stats = recorded(cases.run_of(way, plant), seed)
                yield Planted(kind, way, seed, plant.shows, is_outside(series(stats), twins, plant.shows),
                              [spike.step for spike in stats.spikes()], len(stats.log))


def false_alarms(part: int) -> Iterable[tuple[str, int, list]]: # The name, how many steps, and the spikes
    "What is reported of healthy runs."
    for case in cases.noisy()[::part]:
        stats = recorded(case.run, 0)
        yield case.name, len(stats.log), stats.spikes()


def measure(*options: str) -> dict | None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench spikes")
    parser.add_argument("--part", type=int, default=1)
    parser.add_argument("--show", action="store_true")
    asked = parser.parse_args(options)
    runs = []
    for one in planted(asked.part):
        runs.append(one)
        if asked.show: print(one, flush=True)
    noisy = []
    for name, steps, spikes in false_alarms(asked.part):
        noisy.append((name, steps, spikes))
        if asked.show: print(name, steps, *spikes, flush=True)
    figures = figures_of(runs, noisy)
    if asked.part == 1: return figures
    for title, rows in figures.items(): print(title, rows)
    return None


def figures_of(runs: list[Planted], noisy: list[tuple[str, int, list]]) -> dict:
    "The figures, in percent with their intervals, and tables of all kinds and misses."
    harmful = [one for one in runs if one.harms]
    rows = []
    for kind in cases.KINDS:
        of = [one for one in runs if one.kind == kind]
        harms, harmless = [one for one in of if one.harms], [one for one in of if not one.harms]
        rows.append({"kind": kind, "runs": len(of), "harmful": len(harms),
                     "reported": sum(one.is_found for one in harms),
                     "harmless": len(harmless), "of these reported": sum(one.is_found for one in harmless)})
    misses = [f"{one.kind}; {one.way}; seed {one.seed}: step {one.shows}, reported {one.reported or 'nothing'}"
              for one in harmful if not one.is_found]
    steps = sum(n for _, n, _ in noisy)
    n_false = sum(len(spikes) for _, _, spikes in noisy)
    early = sum(one.before for one in runs)
    return {
        "spikes that do harm and are reported with the right step, in percent": {
            "hooklab": share([one.is_found for one in harmful])},
        "false alarms in 1,000 steps": {
            "healthy runs with noisy losses": [round(1000*n_false/max(steps, 1), 3)]*3,
            "the steps before a plant": [round(1000*early/max(sum(one.shows for one in runs), 1), 3)]*3},
        "counts": [{"harmful": len(harmful), "reported": sum(one.is_found for one in harmful),
                    "healthy runs": len(noisy), "their steps": steps, "their false alarms": n_false}],
        "kinds": rows,
        "missed": misses,
        "false alarms": [f"{name}: {spike}" for name, _, spikes in noisy for spike in spikes],
    }
