"Samples of sweeps: large enough, the same in each run, hardly changed by a new case, and whole in `make sweeps`."
import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.portions import WHOLE, may_be_wrong, sample

CASES = [f"case {i}" for i in range(60)]


def kind(case): return case[-1]


@pytest.mark.parametrize("every", [1, 2, 3, 10, 100])
def test_a_sample_is_a_part_and_never_empty(every):
    for n in range(len(CASES)):
        for seed in "012": assert len(sample(every, CASES[:n], seed=seed)) == -(-n//every)


def test_a_sample_is_in_order_and_each_kind_is_in_it():
    for seed in "0123":
        chosen = sample(4, CASES, kind=kind, seed=seed)
        assert chosen == [case for case in CASES if case in chosen] and len(chosen) == 20
        assert {*map(kind, chosen)} == {*"0123456789"}
    assert len(sample(10**6, CASES, kind=kind)) == 10


@pytest.mark.parametrize("options", [{}, {"kind": kind}])
def test_a_new_case_replaces_one_at_most_wherever_it_is_added(options):
    before = sample(5, CASES, **options)
    for place in 0, 31, len(CASES):
        for new in "a new case 7", "another one 8":
            after = sample(5, [*CASES[:place], new, *CASES[place:]], **options)
            assert len({*before} - {*after}) <= 1 and {*after} <= {*before, new} | {*CASES}
            assert len({*after} - {*before} - {new}) <= 1


def test_other_seeds_take_other_cases_until_all_have_been_taken():
    samples = [tuple(sample(10, CASES, seed=str(seed))) for seed in range(150)]
    assert len({*samples}) == 150 and {case for chosen in samples for case in chosen} == {*CASES}


def test_cases_have_a_name_of_their_own():
    numbers = sample(3, range(30), name=lambda i: CASES[i])
    assert [CASES[i] for i in numbers] == sample(3, CASES[:30])


def run(*args, **env):
    there = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | env
    return subprocess.run([sys.executable, *args], env=there, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("seed", ["3", WHOLE])
def test_another_process_takes_the_same_and_the_seed_is_that_of_the_environment(seed):
    code = "from support.portions import sample; print(sample(7, [f'case {i}' for i in range(60)]))"
    for salt in "12": assert run("-c", code, SEED=seed, PYTHONHASHSEED=salt).strip() == str(sample(7, CASES, seed=seed))
    assert sample(7, CASES, seed=WHOLE) == CASES


def test_the_luck_of_a_sample_is_allowed_for_and_no_other():
    assert may_be_wrong(.02, 300, seed=WHOLE) == 6
    assert 3 < may_be_wrong(.02, 50, seed="0") < 5 and may_be_wrong(0, 50, seed="0") == 0


SWEEPS = '''
import pytest
from support.portions import sample, sweep, swept

@sweep
@pytest.mark.parametrize("i", sample(4, range(20)))
def test_some(i): pass

@pytest.mark.parametrize("i, j", [(100, 0), *swept(4, [(i, i + 1) for i in range(20)])])
def test_others(i, j): pass

@sweep
def test_one(): assert len(sample(4, range(20))) == 20
'''


def collected(repo, file, only, seed):
    asked = "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "-c", str(repo/"pyproject.toml")
    said = run(*asked, "-m", only, str(file), SEED=seed)
    return {line.partition("::")[2] for line in said.splitlines() if "::" in line}


def test_what_runs_where(repo, tmp_path):
    file = tmp_path/"test_sweeps.py"
    file.write_text(SWEEPS)
    def asked(only, seed): return collected(repo, file, only, seed)
    some, whole = asked("slow or peers", "0"), asked("sweep", WHOLE)
    assert len(some) == 5 + 5 + 1 and some < whole and len(whole) == 20 + 20 + 1
    assert asked("slow or peers", "1") not in (some, whole)
    assert asked("not slow and not peers", "0") == {"test_others[100-0]"}


def test_the_targets_of_make(repo):
    def commands(target): return subprocess.check_output(["make", "-n", target], cwd=repo, text=True)
    assert f"SEED={WHOLE} " in commands("sweeps") and "-m sweep\n" in commands("sweeps")
    assert "SEED" not in commands("test-all")


def names_in(node) -> set[str]: return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def unmarked(code: str) -> list[str]:
    "Tests that ask for a sample, themselves or by what their file defines, without the mark that `make sweeps` needs."
    uses, imported = {}, set()
    for node in ast.parse(code).body:
        if isinstance(node, ast.ImportFrom): imported |= {alias.name for alias in node.names}
        if isinstance(node, ast.FunctionDef): uses[node.name] = names_in(node)
        if isinstance(node, ast.Assign):
            for name in set().union(*map(names_in, node.targets)): uses[name] = names_in(node.value)
    def reached(found, new):
        if not new: return found
        found |= new
        return reached(found, set().union(*(uses.get(name, set()) for name in new)) - found)
    tests = {name: reached(set(), used) for name, used in uses.items() if name.startswith("test_")}
    return [name for name, found in tests.items() if "sample" in found & imported and not found & {"sweep", "SWEEP"}]


def test_who_asks_for_a_sample_is_a_sweep(repo):
    assert unmarked(SWEEPS) == [] and unmarked(SWEEPS.replace("@sweep\n", "")) == ["test_some", "test_one"]
    files = {*(repo/"tests").rglob("test_*.py")} - {Path(__file__)}
    found = {file.name: unmarked(file.read_text(encoding="utf-8")) for file in files}
    assert not {name: tests for name, tests in found.items() if tests}
