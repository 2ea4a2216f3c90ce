"Schedules that nobody calls, and warm-ups that take too long. Each has healthy neighbors."
import math
from functools import partial

import pytest
import torch
from torch.optim import lr_scheduler as schedules

import hooklab as hl
from tests.diagnosis.test_beside_the_model import batches, net, step

pytestmark = pytest.mark.usefixtures("one_thread")


def said(stats, what="schedule never moves") -> dict:
    return {f.sure: f"{f.evidence} {f.advice}" for f in hl.diagnose(stats) if f.what == what}


def in_parts(calls, parts=4):
    "A record for each epoch; the schedule may be called behind it."
    model, stats = net(), hl.ActivationStats.for_diagnosis()
    optimizer = torch.optim.SGD(model.parameters(), lr=.05)
    schedule = schedules.StepLR(optimizer, 10, .5)
    for _ in range(parts):
        with stats.on(model, optimizer=optimizer):
            for x, y in batches(30): stats.step(step(model, optimizer, x, y))
        if calls: schedule.step()
    return said(stats)


def test_a_schedule_that_is_never_called():
    assert "StepLR was not called" in in_parts(False)["likely"]
    assert set(in_parts(False, 1)) == {"note"}
    assert not in_parts(True)


def ramp(i, n): return min(1., (i + 1)/n)


SLOW = {"a function": lambda o: schedules.LambdaLR(o, partial(ramp, n=100)),
        "two": lambda o: schedules.SequentialLR(o, [schedules.LinearLR(o, .01, total_iters=80),
                                                    schedules.CosineAnnealingLR(o, 100)], [80]),
        "with a cosine": lambda o: schedules.LambdaLR(
            o, lambda i: i/60 if i < 60 else .5*(1 + math.cos(math.pi*(i - 60)/60)))}


def each(make, every):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=.05)
    schedule = make(optimizer)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for i, (x, y) in enumerate(batches(60), 1):
            stats.step(step(model, optimizer, x, y))
            if i % every == 0: schedule.step()
    return said(stats, "schedule does not fit")


@pytest.mark.parametrize("name", SLOW)
def test_a_warm_up_of_steps_moves_each_epoch(name):
    assert "the warm-up takes" in each(SLOW[name], 8)["likely"]
    assert not each(SLOW[name], 1)


def test_a_warm_up_of_epochs_is_a_note_at_most():
    assert set(each(lambda o: schedules.LambdaLR(o, partial(ramp, n=20)), 8)) == {"note"}
    assert not each(lambda o: schedules.LambdaLR(o, partial(ramp, n=5)), 8)
