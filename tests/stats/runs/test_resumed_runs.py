"""Two runs of which one was stopped and resumed, or changed on the way: where they part, and what is said of it."""
from copy import deepcopy
from functools import cache

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.stats.runs.comparing_runs import compare_runs

pytestmark = pytest.mark.usefixtures("one_thread")
STEPS = 41


def with_norms():
    return nn.Sequential(nn.Linear(12, 240), nn.LayerNorm(240), nn.GELU(), nn.Linear(240, 200), nn.Tanh(),
                         nn.Linear(200, 5))


def without_biases(): return nn.Sequential(*(nn.Linear(i, o, bias=False) for i, o in ((12, 1400), (1400, 20), (20, 5))))


def convolutions():
    return nn.Sequential(nn.Unflatten(1, (3, 2, 2)), nn.Conv2d(3, 96, 1), nn.ReLU(), nn.Conv2d(96, 190, 1),
                         nn.Flatten(), nn.Linear(760, 5))


NETS = [with_norms, without_biases, convolutions]  # each has parameters of which only blocks are measured
class Training:
    "A loop that can be stopped, resumed, and changed."
    def __init__(self, make, change="", late=0):
        torch.manual_seed(3)
        self.model, self.change, self.late = make(), change, late
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 2e-3)

    def batch(self, step):
        numbers = torch.Generator().manual_seed(step)
        return torch.randn(24, 12, generator=numbers), torch.randint(5, (24,), generator=numbers)

    def steps(self, stats, first, last):
        for step in range(first, last):
            x, y = self.batch(step)
            if step >= self.late:
                if self.change == "rate": self.optimizer.param_groups[0]["lr"] = 5e-3
                if self.change == "labels": y = 4 - y
                if self.change == "data": x = x*1.05
                if self.change == "small data": x = x*(1 + 2e-4)
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            stats.step(loss)

    def state(self): return deepcopy((self.model.state_dict(), self.optimizer.state_dict()))

    def load(self, state):
        self.model.load_state_dict(state[0])
        self.optimizer.load_state_dict(state[1])

    def record(self, **options):
        return hl.ActivationStats.for_diagnosis(**options).on(self.model, optimizer=self.optimizer)


@cache
def whole(make, change="", late=0, **options):
    training = Training(make, change, late)
    with training.record(**options) as s: training.steps(s, 0, STEPS)
    return s


def resumed(make, path, checkpoint, saved, change="", late=0, **options):
    "One that goes on from a checkpoint, with a record that was saved before it, with it or behind it."
    first = Training(make, change, late)
    with first.record(**options) as s:
        for step in range(max(checkpoint, saved)):
            if step == checkpoint: state = first.state()
            first.steps(s, step, step + 1)
            if step + 1 == saved: s.save(path)
    if checkpoint >= saved: state = first.state()
    again = Training(make, change, late)
    again.load(state)
    with hl.ActivationStats.load(path).resume(again.model, optimizer=again.optimizer, step=checkpoint) as s:
        again.steps(s, checkpoint, STEPS)
    return s


@pytest.mark.parametrize("make", NETS)
@pytest.mark.parametrize("checkpoint, saved", [(13, 13), (26, 21), (17, 33), (3, 9)])
def test_a_run_that_was_resumed_is_the_same(make, checkpoint, saved, tmp_path):
    a, b = whole(make), resumed(make, tmp_path/"run.safetensors", checkpoint, saved)
    c = compare_runs(a, b)
    assert c.same and "equal bit for bit" in c.verdict, c
    assert {row.estimated for row in c.rows} == {True, False}


@pytest.mark.parametrize("make", NETS)
@pytest.mark.parametrize("change", ["rate", "labels", "data"])
def test_a_change_after_it_is_placed_where_it_was_made(make, change, tmp_path):
    a = whole(make)
    for late, between in (14, (9, 16)), (27, (24, 32)):
        b = resumed(make, tmp_path/"run.safetensors", 14, 14, change, late)
        c = compare_runs(a, b)
        assert not c.same and f"between step {between[0]} and step {between[1]}" in c.verdict, c
        if c.first.estimated and c.first.what == "parameter": assert "may have moved in any step" in c.verdict


def test_a_change_in_a_step_that_is_recorded_is_named(tmp_path):
    a = whole(with_norms, turns=None)
    for change, said in ("rate", "learning rate"), ("labels", "look at the loss."), ("data", "look at the data"):
        b = resumed(with_norms, tmp_path/"run.safetensors", 12, 12, change, 29, turns=None)
        c = compare_runs(a, b)
        assert c.first.step == 29 and said in c.verdict, c


def test_who_looks_at_the_loss_knows_that_the_data_are_the_same():
    a, b = whole(with_norms, turns=None), whole(with_norms, "small data", 19, turns=None)
    c = compare_runs(a, b)
    assert c.first is None or c.first.step >= 19
    assert "look at the loss" not in c.verdict and "no more than rounding" not in c.verdict, c


@pytest.mark.parametrize("known, said", [
    (None, "look at the data and the loss: the record doesn't show if the inputs of step 20 were the same"),
    (True, "look at the loss."), (False, "look at the data: the inputs of step 20 differ")])
def test_what_is_said_of_the_loss(known, said):
    "Gradients of the last layer part; outputs differ by a little, as by rounding."
    c = compare_runs(whole(with_norms, turns=None), whole(with_norms, "labels", 20, turns=None))
    c.found["output"].error[:, 20] = 1e-7  # of this comparison alone
    c.inputs.clear()
    if known is not None: c.inputs[20] = known
    assert c.first.what == "gradient" and c.first.step == 20 and said in c.verdict, c
    assert "within noise" in c.verdict


class Shaken(nn.ReLU):
    "With noise that no rounding makes."
    by = 0.

    def forward(self, x):
        y = super().forward(x)
        return y + self.by*torch.randn(y.shape, generator=torch.Generator().manual_seed(1)) if self.by else y


@pytest.mark.parametrize("by", [3e-5, 3e-6])
def test_noise_in_each_step_is_not_called_rounding(by):
    def net(): return nn.Sequential(nn.Linear(12, 30), nn.ReLU(), nn.Linear(30, 30), Shaken(), nn.Linear(30, 5))
    a = whole(net)
    training = Training(net)
    training.model[3].by = by
    with training.record() as s: training.steps(s, 0, STEPS)
    c = compare_runs(a, s)
    assert not c.same or "may differ by more than rounding" in c.verdict and "no more than rounding" not in c.verdict, c


def test_runs_with_other_threads_differ_by_rounding():
    class Reordered(Training):
        def batch(self, step): return [t.flip(0) for t in super().batch(step)]
    a, training = whole(with_norms), Reordered(with_norms)
    with training.record() as s: training.steps(s, 0, STEPS)
    c = compare_runs(a, s)
    assert c.same and "no more than rounding" in c.verdict and "may differ by more than rounding" not in c.verdict, c
