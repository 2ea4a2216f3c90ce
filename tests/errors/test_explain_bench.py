"""A part of `python -m tests.bench explain`: errors planted in models of torchvision, and in hand-written ones."""
import pytest

from tests.bench import error_cases
from tests.bench.bench_explain import judge

CASES = [case for case in error_cases.all_cases() if case.source in ("torchvision", "hand-written")]


def can_be_planted(case) -> bool:
    try: case.make()
    except error_cases.Rewritten: return False  # this release of torchvision has another text there
    return True


def check(cases):
    found = [judge(case) for case in cases if can_be_planted(case)]
    repaired = [one for one in found if one.case.has_repair]
    assert len(found) > .8*len(cases)
    assert [str(one) for one in found if not one.place] == []
    assert [str(one) for one in repaired if one.wrong] == []
    assert sum(one.runs for one in repaired) >= .8*len(repaired)
    assert [str(one) for one in found if not one.case.has_repair and not one.without] == []


def test_a_part_of_the_planted_errors(): check(CASES[::20])


@pytest.mark.slow
def test_more_of_the_planted_errors(): check(CASES[1::7])
