"""The programs of tests/bench/programs: each is in the set where it belongs, and says what is wrong with it."""
import random

import pytest

from tests.bench import bench_programs
from tests.bench.bench_programs import complaint, name_of, score
from tests.bench.programs import HEALTHY, SETS, programs

ALL = [(name, program) for name in SETS for program in programs(name)]
SOME = random.Random(0).sample(ALL, len(ALL)//10)
WELL = [program for name in HEALTHY for program in programs(name)]


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


def test_healthy_programs_have_a_source_and_no_fault():
    assert len(WELL) >= 100 and all("/" in p.SOURCE and p.YEAR >= 2015 for p in WELL)
    assert not [name_of(p) for p in WELL if hasattr(p, "CAUSE")]


@pytest.mark.slow
@pytest.mark.parametrize("program", random.Random(0).sample(WELL, len(WELL)//10), ids=name_of)
def test_no_tool_fails_on_a_healthy_program(program):
    said = bench_programs.asked(program, True)
    assert said.errors == {}


LEFT_ALONE = {  # what a run has that is no fault: the reason
    "words_under_a_rate_of_thirty": "learning rate too large",  # the loss falls all the time
    "charges_that_move": "not trained",  # nobody needs that part of the last block
    "soft_critics_of_a_squashed_policy": "not trained",  # copies that follow
    "critic_with_gradient_penalty": "gradients vanish",  # two models with two losses
    "spring_by_its_energy": "wrong sign",  # another loss falls
    "tasks_one_after_another": "spike"}  # each new task begins with a high loss, and is learned


@pytest.mark.slow
@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_does_no_harm_is_no_more_than_a_note(name):
    (program,) = [program for program in WELL if name_of(program) == name]
    with bench_programs.alone(0): found = bench_programs.ask_diagnose(program, True)
    assert not [sure for what, sure, _ in found if what == LEFT_ALONE[name] and sure != "note"]
