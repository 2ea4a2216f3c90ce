"The model of the lesson on induction heads: its file and the script that makes it belong together."
import sys

import pytest

from hooklab.exercises.induction import copy_model, repeated_tokens, settings_of_weights, training_course, weights_file
from support.checks import REPO

sys.path.insert(0, str(REPO/"tools"))
import induction  # noqa: E402


def test_the_file_was_made_with_these_settings():
    assert settings_of_weights() == induction.SETTINGS, "they have changed: PYTHONPATH=. python tools/induction.py"
    assert weights_file() == induction.FILE and weights_file().stat().st_size < 300_000


@pytest.mark.parametrize("seed", induction.SETTINGS["seeds"])
def test_the_course_of_training_ends_with_the_saved_model(seed):
    course = training_course(seed)
    assert course["step"].tolist() == induction.MEASURED
    now = induction.measured(copy_model(seed), repeated_tokens(100, induction.PERIOD))
    for name, number in now.items(): assert number == pytest.approx(course[name][-1].item(), abs=0.08), name


def test_the_texts_of_the_script_are_repeated_after_a_period_of_their_own():
    periods = [next(p for p in range(1, 41) if (text[p:] == text[:-p]).all()) for text in induction.batch()]
    assert min(periods) >= 6 and max(periods) <= 20 and len(set(periods)) > 5


@pytest.mark.slow
def test_training_again_makes_the_same_kinds_of_heads():
    _, course = induction.train(0)
    assert course[-1]["second"] < 0.1 < 3 < course[-1]["first"]
    assert course[-1]["induction"] > 0.8 and course[-1]["looks_back"] > 0.7
