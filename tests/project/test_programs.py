"""The programs of tests/bench/programs: each is in the set where it belongs, and says what is wrong with it."""
import random

import pytest

from tests.bench import bench_programs
from tests.bench.bench_programs import complaint, name_of, score
from tests.bench.programs import SETS, programs

ALL = [(name, program) for name in SETS for program in programs(name)]
SOME = random.Random(0).sample(ALL, len(ALL)//10)


def test_all_programs_are_entered_rightly():
    assert [f"{name_of(program)}: {why}" for name, program in ALL if (why := complaint(program, name))] == []
    faults = [(program.SOURCE, program.CAUSE) for _, program in ALL]  # a report may have two
    assert len({*faults}) == len(faults) and len(ALL) >= 100
    assert sum(program.YEAR >= 2020 for _, program in ALL) >= .6*len(ALL)


@pytest.mark.slow
@pytest.mark.parametrize("name, program", SOME, ids=[name_of(program) for _, program in SOME])
def test_the_fault_does_harm(name, program):
    fault, twin = ([score(program, seed, repaired) for seed in bench_programs.harm_seeds] for repaired in (False, True))
    assert bench_programs.harmed(fault, twin)
