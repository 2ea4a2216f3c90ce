"Tests of many cases alike: a part of them is run each time, and all of them in the slow part."
from collections.abc import Iterable

import pytest


def one_in(every: int, cases: Iterable) -> list:
    "Parameters of a test: the first case, and one in so many from there on; the others are slow."
    return [pytest.param(case, marks=[] if i % every == 0 else pytest.mark.slow) for i, case in enumerate(cases)]
