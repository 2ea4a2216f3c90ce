"""A layer that no hook saw may have run: by a `__call__` or `forward` past hooks, or with its weights lent."""
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.hooks.select import may_pass_hooks

pytestmark = pytest.mark.usefixtures("one_thread")


class Shift(nn.Module):
    "Is called past its hooks, as the means of gpytorch are."
    def __init__(self):
        super().__init__()
        self.by = nn.Parameter(torch.zeros(8))
    def __call__(self, x): return self.forward(x)
    def forward(self, x): return x + self.by


class Counts(nn.Linear):
    "Has a `__call__` of its own, in which hooks are called all the same."
    calls = 0
    def __call__(self, *given):
        self.calls += 1
        return super().__call__(*given)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.shift, self.counts, self.last = nn.Linear(4, 8), Shift(), Counts(8, 8), nn.Linear(8, 2)
        self.lent, self.direct, self.idle, self.unused = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(3, 3), Shift()

    def forward(self, x):
        h = self.counts(self.shift(self.first(x).relu()))
        return self.last(F.linear(self.direct.forward(h), self.lent.weight, self.lent.bias))


class Shift8(nn.Module):
    def __init__(self):
        super().__init__()
        self.by = nn.Parameter(torch.zeros(2))
    def __call__(self, x): return self.forward(x)
    def forward(self, x): return x[:, :2] + self.by


class Around(nn.Sequential):
    def __call__(self, x): return self.forward(x)


def trained(stats, model=None, steps=12):
    torch.manual_seed(0)
    model = model or Net()
    optimizer, x = torch.optim.SGD(model.parameters(), .1), torch.randn(32, 4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with stats.on(model, optimizer) as s:
            for _ in range(steps):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), (x[:, 0] > 0).long())
                loss.backward()
                optimizer.step()
                s.step(loss)
    return s, [str(w.message) for w in caught if w.category is hl.HookWarning]


def never_ran(d): return [layer for f in d if f.what == "never ran" for layer in f.layers]


@pytest.mark.parametrize("make", [hl.ActivationStats.for_diagnosis,
                                  lambda: hl.ActivationStats(with_hist=True, grads=True)])
def test_only_a_layer_that_had_no_part_in_it_never_ran(make):
    s, said = trained(make())
    assert not said
    assert never_ran(hl.diagnose(s)) == ["idle"]


def test_a_layer_that_was_asked_for_is_due():
    _, (said,) = trained(hl.ActivationStats(modules="*"))
    unseen, uncalled = said.split("; ")
    assert unseen.startswith("shift, unused: hooked, but not seen (a Shift has a `__call__` of its own")
    assert "counts" not in said
    assert uncalled.startswith("lent, direct, idle: hooked, but never called")
    model = Net()
    with pytest.warns(hl.HookWarning, match="^shift: hooked, but not seen"), hl.hook_outputs(model, names="shift"):
        model(torch.ones(2, 4))


def test_where_no_layer_was_seen():
    s, said = trained(hl.ActivationStats.for_diagnosis(), Around(Shift8()))
    assert len(said) == 1 and "a Around has its own `__call__`, which may bypass its hooks" in said[0]
    d = hl.diagnose(s)
    assert [f.sure for f in d if f.what == "nothing recorded"] == ["note"] and "never ran" not in d


def test_preflight_says_that_a_layer_never_ran_of_those_alone_that_hooks_would_see():
    torch.manual_seed(0)
    model, x = Net(), torch.randn(32, 4)
    found = hl.preflight(model, F.cross_entropy, (x, (x[:, 0] > 0).long()), torch.optim.Adam(model.parameters(), 1e-2))
    assert never_ran(found) == ["idle"], f"{found!r}"
    assert [f.layers for f in found if f.what == "not trained"] == [["unused"]], f"{found!r}"


def test_a_cut_behind_a_layer_that_no_hook_saw():
    "The loss changes with its weights, so it was called, and its gradient is cut."
    class Cut(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)
        def forward(self, x): return self.last(self.first.forward(x).relu().detach())
    torch.manual_seed(0)
    model, x = Cut(), torch.randn(32, 4)
    found = hl.preflight(model, F.cross_entropy, (x, (x[:, 0] > 0).long()), torch.optim.Adam(model.parameters(), 1e-2))
    assert "never ran" not in found and found, f"{found!r}"


def test_whose_call_may_pass_hooks():
    assert [may_pass_hooks(m) for m in (nn.Linear(1, 1), Shift(), Counts(1, 1), Around())] == [False, True, True, True]


@pytest.mark.peers
def test_means_of_gpytorch():
    gpytorch = pytest.importorskip("gpytorch")
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.mean = nn.Linear(4, 2), gpytorch.means.ConstantMean()
        def forward(self, x):
            h = self.first(x)
            return h + self.mean(h)[:, None]*torch.tensor([1., 0.])
    s, said = trained(hl.ActivationStats.for_diagnosis(), Model())
    assert not said and not never_ran(hl.diagnose(s))
