"Which steps of a long run are measured: all of the first ones, then fewer."
import pytest
import torch
from torch import nn

import hooklab as hl
from hooklab.hooks.attached import hooks_on
from hooklab.stats.measure.measured_steps import LATE_PERIOD, LATER_PERIOD, Schedule


def net(layers=12): return nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers)))


def recorded(model, steps, turns=5, **options):
    opt = torch.optim.SGD(model.parameters(), lr=.01)
    s = hl.ActivationStats(grads=True, turns=turns, **options)
    with s.on(model, optimizer=opt):
        for _ in range(steps):
            model(torch.randn(8, 4)).square().sum().backward()
            opt.step()
            opt.zero_grad()
            s.step()
    return s


def steps_of(turns, n):
    "The steps that are measured, of so many."
    schedule, found = Schedule(turns), []
    for schedule.ended in range(n):
        if schedule.measures: found.append(schedule.ended)
    return found


@pytest.mark.parametrize("turns", [1, 5, 10, 100])
def test_first_all_then_fewer(turns):
    found = steps_of(turns, 20*turns + 200)
    assert found[:turns] == [*range(turns)]
    gaps = {b - a for a, b in zip(found, found[1:]) if turns + LATER_PERIOD <= a and b < 10*turns}
    assert gaps <= {LATER_PERIOD}
    later = [step for step in found if step >= 10*turns]
    assert {b - a for a, b in zip(later, later[1:])} == {LATE_PERIOD}


def test_without_turns_all_are_measured(): assert steps_of(None, 1000) == [*range(1000)]


@pytest.mark.parametrize("samples", [False, True])
def test_rows(samples):
    s = recorded(net(), 150, samples=samples)
    assert s.steps == s.gradients.steps == s.updates.steps == steps_of(5, 150)
    assert (s.history.values("n") == 32).all() and (s.gradients.values("n") > 0).all()
    assert s.updates.values().isfinite().all()
    assert s.history.turns == 5 and hl.ActivationStats().history.turns is None


def test_numbers_are_those_of_a_record_without_turns():
    torch.manual_seed(0)
    some = recorded(net(), 90)
    torch.manual_seed(0)
    whole = recorded(net(), 90, turns=None)
    at = [whole.steps.index(step) for step in some.steps]
    for kind in ("history", "gradients"):
        a, b = getattr(some, kind), getattr(whole, kind)
        for what in ("n", "mean", "std", "near_zero"):
            torch.testing.assert_close(a.values(what), b.values(what)[:, at])
    torch.testing.assert_close(some.updates.values(), whole.updates.values()[:, at])


@pytest.mark.parametrize("loop", [False, True])
def test_nothing_is_on_in_a_step_that_is_not_measured(loop):
    model = net()
    s, on = hl.ActivationStats(turns=2, loop=loop).on(model), []
    for _ in range(LATER_PERIOD + 1):
        on.append(sum(row.kind != "loop" for row in hooks_on(model)))  # the loop is watched in every step
        model(torch.randn(3, 4))
        s.step()
    watched = any(row.kind == "loop" for row in hooks_on(model))
    s.remove()
    assert on[0] == on[1] == on[LATER_PERIOD] > 0 and not any(on[2:LATER_PERIOD])
    assert watched == loop and not hooks_on(model)


def test_a_long_record_is_thinned_out_evenly():
    s = recorded(net(), 2000, turns=20, max_rows=64)
    assert len(s.history) <= 64 and (s.history.values("n") > 0).all()
    gaps = [b - a for a, b in zip(s.steps, s.steps[1:])]
    assert set(gaps[-10:]) == {LATE_PERIOD} or set(gaps[-10:]) == {2*LATE_PERIOD}


def test_every_and_turns():
    model = net()
    s = hl.ActivationStats(turns=3, every=2).on(model)
    for _ in range(120):
        model(torch.randn(3, 4))
        s.step()
    s.remove()
    assert s.steps == [2*step for step in steps_of(3, 60)]


def test_layers_with_several_calls_and_large_outputs():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 400), nn.Linear(4, 4)
        def forward(self, x): return self.a(self.b(self.b(x))).sum()
    s = recorded(Net(), 60, samples=True)
    assert set(s.history.values("n")[s.names.index("b")].tolist()) == {64}
    assert (s.history.values("n_samples")[s.names.index("b")] == 8).all()


@pytest.mark.parametrize("samples", [False, True])
def test_in_compiled_code_hooks_stay_and_only_the_step_that_ends_counts(samples):
    model = net(3)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    s = hl.ActivationStats(turns=2, samples=samples).on(model)
    for _ in range(LATER_PERIOD + 1):
        compiled(torch.randn(8, 4))
        s.step()
    s.remove()
    assert s.steps == [0, 1, LATER_PERIOD] and (s.history.values("n") == 32).all() and not hooks_on(model)


def test_resumed_it_goes_on_where_it_was(tmp_path):
    s = recorded(net(), 30, turns=5)
    s.save(tmp_path/"run.safetensors")
    again, model = hl.ActivationStats.load(tmp_path/"run.safetensors"), net()
    opt = torch.optim.SGD(model.parameters(), lr=.01)
    with again.resume(model, opt):
        for _ in range(60):
            model(torch.randn(8, 4)).square().sum().backward()
            opt.step()
            again.step()
    assert again.steps == steps_of(5, 90) == again.updates.steps


def test_pictures_and_the_page(tmp_path):
    s = recorded(net(), 60, samples=True, include_paramless=True)
    s.plot()
    assert s.report(tmp_path/"run.html").exists() and "did not run" not in (tmp_path/"run.html").read_text()


def test_a_hook_of_ones_own_has_no_turns():
    with pytest.raises(TypeError, match="turns="):
        hl.ActivationStats(turns=5, hook=lambda m, i, o: 1).on(nn.Linear(2, 2))


def test_steps_that_end_by_themselves():
    model = net(2)
    opt = torch.optim.SGD(model.parameters(), lr=.01)
    with hl.ActivationStats.for_diagnosis(turns=2).on(model, optimizer=opt, auto=True) as s:
        for _ in range(40):
            opt.zero_grad()
            model(torch.randn(8, 4)).square().sum().backward()
            opt.step()
    assert s.steps == s.updates.steps == s.gradients.steps == steps_of(2, 40) and len(s.log) == 40
