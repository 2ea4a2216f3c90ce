"""Healthy runs of kinds that look odd: preflight, a record and both together say nothing of them beyond a note."""
import pytest

from support.odd_runs import RUNS, learns, looked_at
from support.portions import SWEEP

pytestmark = pytest.mark.usefixtures("one_thread")
AT_ONCE = "a mask of 3 %", "targets in the thousands"


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in AT_ONCE else SWEEP) for name in RUNS])
def test_it_is_left_alone(name):
    before, after, losses = looked_at(name)
    assert learns(name, losses)
    assert not before, f"{before!r}"
    assert not after, f"{after!r}"
