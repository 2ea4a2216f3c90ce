"""The loops of tests/bench/resume_loops: each is what it says, which takes nothing but the loop to prove."""
from importlib import reload
from types import SimpleNamespace

import pytest

from tests.bench import resume_loops
from tests.bench.resume_loops import judged, loops, loops_that_differ, name_of, pairs, what_is_wrong

pytestmark = pytest.mark.usefixtures("one_thread")
slow = pytest.mark.slow
QUICK = """a_generator accumulation batch_norm closures cosine_restarts differs_by_clock dtype_switch
    ema_own grad_scaler lookahead mixed_counters module_globals noise_schedule one_cycle own_generator
    plain_python_state plain_tuple plateau switches""".split()
ALL = [pytest.param(loop, id=name_of(loop), marks=[] if name_of(loop) in QUICK else [slow])
       for loop in resume_loops.modules()]


@pytest.mark.parametrize("loop", ALL)
def test_checkpoints_are_complete_and_each_state_matters_unless_it_is_silent(loop):
    assert what_is_wrong(reload(loop)) == []  # one keeps its state in a default, where other tests leave theirs


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("loop", resume_loops.TRAINERS)
def test_what_the_checkpoints_of_libraries_lack(loop, tmp_path):
    (module,) = [module for module in resume_loops.trainers() if name_of(module) == loop]
    assert resume_loops.what_is_wrong_with_trainer(module, tmp_path) == []


def test_all_loops_say_what_they_have():
    assert len(loops()) >= 30 and len(loops_that_differ()) >= 7 and len(pairs()) >= 150
    for loop in resume_loops.modules():
        assert loop.__doc__ and loop.WARM > 0 and loop.STEPS > 0, name_of(loop)
        for named in loop.STATES, getattr(loop, "CONSEQUENCES", {}):
            assert all(isinstance(fragments, tuple) and all(fragments) for fragments in named.values()), name_of(loop)
    assert {*QUICK} <= {name_of(loop) for loop in resume_loops.modules()}


def variant(name, **changed):
    "A loop with something else in it."
    (loop,) = [loop for loop in resume_loops.modules() if name_of(loop) == name]
    return SimpleNamespace(**{**vars(loop), **changed}), loop


@pytest.mark.parametrize("name, state", [("plateau", "plateau"), ("accumulation", "gradients"), ("switches", "turn"),
                                         ("own_generator", "generator"), ("plain_python_state", "mean")])
def test_a_state_that_is_always_forgotten_is_found(name, state):
    (_, loop) = variant(name)
    loose, _ = variant(name, save=lambda run, without=(): loop.save(run, (*without, state)))
    (wrong, *_) = what_is_wrong(loose)
    assert wrong.startswith("the complete checkpoint goes on with")


def test_a_state_that_is_wrongly_called_silent_or_not_silent_is_found():
    loud, _ = variant("ema_own", SILENT={"optim", "ema"})
    assert what_is_wrong(loud) == ["without ema: states, and silent is True"]
    quiet, _ = variant("ema_own", SILENT=set())
    assert what_is_wrong(quiet) == ["without optim: nothing, and silent is False"]


def test_a_loop_that_wrongly_differs_or_does_not_is_found():
    steady, _ = variant("closures", DIFFERS=True)
    assert what_is_wrong(steady) == ["it goes on in the same way"]
    moving, _ = variant("differs_by_clock", DIFFERS=False)
    assert what_is_wrong(moving)[0].startswith("two runs differ")


def test_what_counts_as_naming_a_state():
    (_, loop) = variant("early_stopping")
    lost = ["`run.stopping.best_loss` did not come back: 0.5 became inf", "The losses part after 3 steps"]
    assert judged(loop, "best_loss", lost) == (True, [])
    assert judged(loop, "best_loss", lost[1:]) == (False, [])
    also = "`run.stopping.patience_left` did not come back: 2 became 3"
    assert judged(loop, "best_loss", [*lost, also]) == (True, [])
    other = "`run.opt` did not come back"
    assert judged(loop, "best_loss", [lost[0], other]) == (True, [other])
    assert judged(loop, "model", [other.replace("opt", "model2")]) == (False, [other.replace("opt", "model2")])


def test_a_word_of_any_sentence_names_a_state_only_in_a_path():
    (_, loop) = variant("dict_of_everything")
    assert judged(loop, "at", ["`run['at']` did not come back: 8 became 0"]) == (True, [])
    other = "`run['net']` did not come back: it differs at step 3"
    assert judged(loop, "at", [other]) == (False, [other])
    (_, loop) = variant("augmentation")
    assert judged(loop, "numpy", ["NumPy's random state did not come back", "The batches differ"]) == (True, [])
