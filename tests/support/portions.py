"""Tests of many cases alike: a part of them is run each time, and all of them in a slower part.

`one_in` leaves a part of the cases to `make test-all`. A sweep is a test whose cases are so alike that a few of them
find nearly what all of them find: `make test-all` runs a sample, which a seed chooses, and `make sweeps` runs them all.
"""
import hashlib
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable

import pytest

SEED = os.environ.get("SEED", "0")  # the same until somebody changes it, so that what fails fails again
WHOLE = "all"  # the seed with which a sample is everything: that of `make sweeps`


def one_in(every: int, cases: Iterable) -> list:
    "Parameters of a test: the first case, and one in so many from there on; the others are slow."
    return [pytest.param(case, marks=[] if i % every == 0 else pytest.mark.slow) for i, case in enumerate(cases)]


def sample(every: int, cases: Iterable, name: Callable = str, kind: Callable | None = None, seed: str = SEED) -> list:
    """One case in so many, at least one of each kind, in their order. A test that asks for it is marked with `@sweep`.

    The names decide, and not the places: with a new case, at most one of its kind leaves the sample."""
    cases, kinds = list(cases), defaultdict(list)
    if seed == WHOLE: return cases
    for i, case in enumerate(cases): kinds[kind and kind(case)].append(i)
    def drawn(i): return hashlib.sha256(f"{seed}: {name(cases[i])}".encode()).digest()
    chosen = {i for alike in kinds.values() for i in sorted(alike, key=drawn)[:math.ceil(len(alike)/every)]}
    return [case for i, case in enumerate(cases) if i in chosen]


def sweep(test):
    "Marks a test, or a parameter of one, as a sweep: `make test-all` runs a sample of it, and `make sweeps` the whole."
    return pytest.mark.sweep(pytest.mark.slow(test))


SWEEP = [pytest.mark.slow, pytest.mark.sweep]  # the same as marks of a parameter


def swept(every: int, cases: Iterable, **options) -> list:
    "The sample as parameters of a test that also has other cases; a tuple holds a parameter for each of its names."
    def values(case): return case if isinstance(case, tuple) else (case,)
    return [pytest.param(*values(case), marks=SWEEP) for case in sample(every, cases, **options)]


def may_be_wrong(rate: float, n: int, seed: str = SEED) -> float:
    """How many of `n` cases may be wrong if of all cases this fraction may be.

    The luck of a sample is allowed for, with three standard deviations; the whole has no luck."""
    return rate*n + (0 if seed == WHOLE else 3*math.sqrt(rate*(1 - rate)*n))
