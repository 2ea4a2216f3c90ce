"Layers in turns: all of them at first, then a few at a time."
import pytest
import torch
from torch import nn

import hooklab as hl
from hooklab.hooks.attached import hooks_on
from hooklab.stats.measure.turns import EVERY, EVERYBODY, NOBODY, SHARES, Rota, share


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


@pytest.mark.parametrize("n", range(1, 40))
def test_each_has_its_turn(n):
    seen = [range(n)[share(turn, n)] for turn in range(SHARES)]
    assert set().union(*seen) == set(range(n)) and max(map(len, seen)) == -(-n//SHARES)
    assert len(range(n)[share(EVERYBODY, n)]) == n and not len(range(n)[share(NOBODY, n)])
    dropped = [range(n)[share(turn, n)] for turn in range(0, 4*SHARES, 2)]  # what a long record keeps
    assert set().union(*dropped) == set(range(n))


def test_without_turns_all_are_measured():
    rota = Rota()
    for rota.ended in range(1000): assert rota.number == EVERYBODY


@pytest.mark.parametrize("samples", [False, True])
def test_rows(samples):
    s = recorded(net(), 5 + EVERY*SHARES*2, samples=samples)
    n = s.history.values("n")
    assert (n[:, :5] == 32).all() and set(n[:, 5:].unique().tolist()) == {0, 32} and ((n[:, 5:] > 0).sum(0) <= 2).all()
    assert ((n[:, 5:] > 0).sum(1) == 2).all() and s.steps == [*range(5), *range(5, 5 + EVERY*SHARES*2, EVERY)]
    assert s.gradients.steps == s.updates.steps == s.steps and ((s.gradients.values("n")[:, 5:] > 0).sum(1) == 2).all()
    ratio = s.updates.values()
    assert ratio[:, :5].isfinite().all() and ((ratio[:, 5:].isfinite()).sum(1) == 2).all()
    assert s.history.turns == 5 and hl.ActivationStats().history.turns is None


def test_numbers_are_those_of_a_record_without_turns():
    torch.manual_seed(0)
    some = recorded(net(), 60)
    torch.manual_seed(0)
    whole = recorded(net(), 60, turns=None)
    at = [whole.steps.index(step) for step in some.steps]
    for kind in ("history", "gradients"):
        a, b = getattr(some, kind), getattr(whole, kind)
        there = a.values("n") > 0
        for what in ("mean", "std", "near_zero"):
            torch.testing.assert_close(a.values(what)[there], b.values(what)[:, at][there])
    there = some.updates.values().isfinite()
    torch.testing.assert_close(some.updates.values()[there], whole.updates.values()[:, at][there])


def test_nothing_is_on_between_turns():
    model = net()
    s, on = hl.ActivationStats(turns=2).on(model), []
    for _ in range(2 + EVERY + 1):
        on.append(sum(row.kind != "loop" for row in hooks_on(model)))  # the loop is watched in every step
        model(torch.randn(3, 4))
        s.step()
    s.remove()
    assert on[0] == on[1] > on[2] > 0 and on[3:6] == [0, 0, 0] and on[6] > 0 and not hooks_on(model)


def test_a_long_record_sees_every_layer():
    s = recorded(net(), 2000, turns=20, max_rows=64)
    assert len(s.history) <= 64 and (s.history.values("n")[:, -20:] > 0).any(1).all()


def test_every_and_turns():
    model = net()
    s = hl.ActivationStats(turns=3, every=2).on(model)
    for _ in range(40):
        model(torch.randn(3, 4))
        s.step()
    s.remove()
    assert s.steps == [0, 2, 4, 6, 14, 22, 30, 38]


def test_layers_with_several_calls_and_large_outputs():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 400), nn.Linear(4, 4)
        def forward(self, x): return self.a(self.b(self.b(x))).sum()
    s = recorded(Net(), 60, samples=True)
    assert set(s.history.values("n")[s.names.index("b")].tolist()) == {0, 64}
    assert (s.history.values("n_samples")[s.names.index("b"), :5] == 8).all()


def test_in_compiled_code_hooks_stay():
    model = net(3)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    s = hl.ActivationStats(turns=2, samples=True).on(model)
    for _ in range(12):
        compiled(torch.randn(8, 4))
        s.step()
    s.remove()
    n = s.history.values("n")
    assert (n[:, :2] == 32).all() and (n[:, 2:] > 0).any() and not hooks_on(model)


def test_pictures_and_the_page(tmp_path):
    s = recorded(net(), 60, samples=True, include_paramless=True)
    s.plot()
    assert s.report(tmp_path/"run.html").exists() and "did not run" not in (tmp_path/"run.html").read_text()


def test_a_hook_of_ones_own_has_no_turns():
    with pytest.raises(TypeError, match="turns="):
        hl.ActivationStats(turns=5, hook=lambda m, i, o: 1).on(nn.Linear(2, 2))
