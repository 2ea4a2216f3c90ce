"""What `check_resume` says of the loops of tests/bench/resume_loops: a tenth in `make test`, all in `make test-all`.

What counts as right is in the loops, which were written before check_resume was tried on them. The figures are kept by
`python -m tests.bench resume`."""
from importlib import reload

import pytest

from tests.bench.bench_resume import Row, ask, ask_trainer, figures_of
from tests.bench.resume_loops import TRAINERS, loops, loops_that_differ, name_of, pairs, trainers

pytestmark = pytest.mark.usefixtures("one_thread")
MISSED = {("own_generator", "done"), ("differs_by_a_global_count", "")}  # as bench_resume says


def every_tenth(cases: list[tuple], after: int) -> list:
    "Parameters: all but every tenth are slow, and what is missed has to be missed."
    def marks(i, case):
        loop, *state = case
        missed = [pytest.mark.xfail(strict=True)] if (name_of(loop), *state, "")[:2] in MISSED else []
        return [*missed, pytest.mark.slow] if i % 10 != after else missed
    return [pytest.param(*case, marks=marks(i, case), id=" without ".join([name_of(case[0]), *case[1:]]))
            for i, case in enumerate(cases)]


@pytest.mark.parametrize(("loop", "state"), every_tenth(pairs(), 3))
def test_a_state_that_is_left_out_is_named_and_nothing_else(loop, state):
    row = ask(loop, state)
    assert row.is_right, row


@pytest.mark.parametrize("loop", every_tenth([(loop,) for loop in loops()], 4))
def test_a_complete_checkpoint_is_silent(loop):
    row = ask(loop)
    assert row.is_right, row


@pytest.mark.parametrize("loop", every_tenth([(loop,) for loop in loops_that_differ()], 5))
def test_a_loop_that_differs_by_itself_is_said_to_and_accuses_nothing(loop):
    row = ask(reload(loop))  # without what other tests have left in a default
    assert row.is_right, row


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("name", TRAINERS)
def test_trainers(name, complete, caplog):
    caplog.set_level("CRITICAL")
    (module,) = [module for module in trainers() if name_of(module) == name]
    row = ask_trainer(module, complete)
    assert row.is_right, row


def test_what_the_figures_count():
    right = Row("a", ("x",), "state", ["x"], ("x",))
    rows = [right, Row("a", ("y",), "state", ["z"], (), ["z"]), Row("a", ("x",), "silent"),
            Row("a", same=True), Row("b", error="KeyError"), Row("c", kind="differs", differs=True),
            Row("d", kind="differs", findings=["x"], others=["x"])]
    figures = figures_of(rows)
    shares = {row: middle for row, (middle, *_) in figures["resume: percent"].items()}
    assert shares == {"state named": 50, "nothing else named": 66.67, "complete silent": 50, "differs, said": 50,
                      "differs, nothing accused": 50}
    assert [*map(str, rows)][1] in figures["resume: misses"] and len(figures["resume: misses"]) == 3
    assert right.is_right and not Row("a", ("x",), "state").is_right and not Row("a", same=False).is_right
