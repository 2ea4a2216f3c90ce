"A rate that is written where nobody reads it, and schedules that nobody calls. Each has healthy neighbours."
import math
from functools import partial

import pytest
import torch
from torch.optim import lr_scheduler as schedules

import hooklab as hl
from tests.stats.diagnosing.test_beside_the_model import batches, net, step

pytestmark = pytest.mark.usefixtures("one_thread")


def said(stats, what="schedule never moves") -> dict:
    return {f.sure: f"{f.evidence} {f.advice}" for f in hl.diagnose(stats) if f.what == what}


def rate_of(epoch): return .05*.5**epoch


def to_state(optimizer, epoch):
    for group in optimizer.state_dict()["param_groups"]: group["lr"] = rate_of(epoch)


def to_defaults(optimizer, epoch): optimizer.defaults["lr"] = rate_of(epoch)


def to_attribute(optimizer, epoch): optimizer.lr = rate_of(epoch)


def to_another_key(optimizer, epoch): optimizer.param_groups[0]["learning_rate"] = rate_of(epoch)


def to_groups(optimizer, epoch):
    optimizer.state_dict()
    optimizer.lr = rate_of(epoch)
    for group in optimizer.param_groups: group["lr"] = rate_of(epoch)


def by_loading(optimizer, epoch):
    state = optimizer.state_dict()
    for group in state["param_groups"]: group["lr"] = rate_of(epoch)
    optimizer.load_state_dict(state)


def saves(optimizer, epoch): optimizer.state_dict()


class Trainer:
    "Has a method for an epoch, and one for the rate."
    def __init__(self, write, kind=torch.optim.SGD, **options):
        self.model, self.write = net(), write
        self.optimizer = kind(self.model.parameters(), lr=.05, **options)

    def epoch(self, number, stats):
        self.write(self.optimizer, number)
        for x, y in batches(8): stats.step(step(self.model, self.optimizer, x, y))

    def run(self):
        with hl.ActivationStats.for_diagnosis().on(self.model, optimizer=self.optimizer) as stats:
            for number in range(5): self.epoch(number, stats)
        return stats


@pytest.mark.parametrize("write, where", [(to_state, "state_dict()"), (to_defaults, "defaults['lr']"),
                                          (to_attribute, "optimizer.lr"), (to_another_key, "'learning_rate'")])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_a_rate_that_is_written_where_it_is_not_read(write, where, kind):
    text = said(Trainer(write, kind).run())["likely"]
    assert where in text and "0.0031" in text and "its rate was 0.05 in all 40 steps" in text


@pytest.mark.parametrize("write", [to_groups, by_loading, saves])
def test_a_rate_that_is_read(write):
    trainer = Trainer(write)
    assert not said(trainer.run())
    assert not trainer.optimizer._optimizer_state_dict_post_hooks


class Noam:
    "Sets the rate, and makes the step."
    def __init__(self, optimizer, warmup=20): self.opt, self.n, self.warmup = optimizer, 0, warmup

    def rate(self): return .05*min(self.n/self.warmup, (self.warmup/self.n)**.5)

    def step(self):
        self.n += 1
        for group in self.opt.param_groups: group["lr"] = self.rate()
        self.opt.step()


class InTwo(Noam):
    "The same, in another order and with a call for each part."
    def step(self):
        self.opt.step()
        self.update()

    def update(self):
        self.n += 1
        for group in self.opt.param_groups: group["lr"] *= .99


class ForEpochs(Noam):
    "Only sets the rate."
    def step(self):
        self.n += 1
        self.opt.param_groups[0]["lr"] = self.rate()


class Clips:
    "Makes the step and sets no rate."
    def __init__(self, optimizer): self.opt, self.n = optimizer, 0

    def step(self):
        self.n += 1
        self.opt.step()


def wrapped(make, calls, given=False):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=.05)
    wrapper = make(optimizer)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=wrapper if given else optimizer) as stats:
        for x, y in batches(30): stats.step(step(model, wrapper if calls else optimizer, x, y))
    return said(stats)


def cleared(kind):
    "With the zero_grad that a loop calls."
    return type(kind.__name__, (kind,), {"zero_grad": lambda self: self.opt.zero_grad()})


@pytest.mark.parametrize("kind", [Noam, InTwo])
@pytest.mark.parametrize("given", [False, True])
def test_a_step_past_the_wrapper(kind, given):
    assert "none of its counters has changed" in wrapped(cleared(kind), False, given)["likely"]
    assert "likely" not in wrapped(cleared(kind), True, given)


def test_wrappers_that_may_rest():
    assert not wrapped(cleared(Clips), False)
    assert set(wrapped(ForEpochs, False)) == {"note"}  # it may be called behind the record


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
