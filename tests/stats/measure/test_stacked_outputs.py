"Small tensors of several steps are measured together, and nobody who reads can tell."
import copy
import pickle

import pytest
import torch
from torch import nn

import hooklab as hl
from hooklab.hooks.select import leaves
from hooklab.stats.measure import stacked_outputs


def net(): return nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 7), nn.Linear(7, 3))


class Sometimes(nn.Module):
    "The second layer runs in every third step only, the third begins in the fifth step."
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.step = nn.Linear(6, 6), nn.Linear(6, 4), nn.Linear(6, 2), -1

    def forward(self, x):
        self.step += 1
        x = self.a(x)
        if self.step % 3 == 0: self.b(x)
        if self.step >= 5: self.c(x)
        return self.a(x) if self.step == 7 else x  # called twice


def by_hand(model, batches):
    "The outputs of each layer in each step."
    found = []
    for x in batches:
        with hl.hook_outputs(leaves(model), root=model) as hooks: model(x)
        found.append({h.name: torch.cat([c.flatten() for c in h.calls]) for h in hooks if h.calls})
    return found


def check(stats, expected):
    assert len(stats.steps) == len(expected)
    for row, outputs in zip(stats.stats, expected):
        for name, found in zip(stats.names, row):
            if name not in outputs:
                assert found.get("n", 0) == 0
                continue
            x = outputs[name].double()
            assert found["mean"] == pytest.approx(x.mean().item(), rel=1e-5, abs=1e-6)
            assert found["std"] == pytest.approx(x.std().item(), rel=1e-5, abs=1e-6)
            assert found["near_zero"] == pytest.approx((x <= .05).double().mean().item(), abs=1e-6)


def batches(n, size=8): return [torch.randn(size, 6) for _ in range(n)]


@pytest.mark.parametrize("make", [net, Sometimes])
@pytest.mark.parametrize("pages", [1, 2, 3, 16])
def test_numbers_are_those_of_the_outputs(make, pages, monkeypatch):
    monkeypatch.setattr(stacked_outputs, "MAX_PAGES", pages)
    torch.manual_seed(0)
    model, given = make(), batches(23)
    expected = by_hand(copy.deepcopy(model), given)
    with hl.ActivationStats(include_paramless=True).on(model) as stats:
        for x in given:
            model(x)
            stats.step()
    check(stats, expected)


@pytest.mark.parametrize("read", [lambda s: s.stats, lambda s: s.history.values("mean"), lambda s: s.snapshot(), str,
                                  copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s)), lambda s: s.history.is_meta])
def test_who_reads_at_any_moment_sees_all_steps_and_changes_none(read):
    torch.manual_seed(0)
    model, given = net(), batches(20)
    expected = by_hand(model, given)
    with hl.ActivationStats(include_paramless=True).on(model) as stats:
        for i, x in enumerate(given):
            if i in (3, 7): read(stats)
            model(x)
            if i in (4, 9, 10): read(stats)  # in the middle of a step
            stats.step()
            if i in (2, 3, 12):
                read(stats)
                check(stats, expected[:i + 1])
    check(stats, expected)


def test_a_copy_holds_what_had_been_recorded():
    model = net()
    with hl.ActivationStats().on(model) as stats:
        for i, x in enumerate(batches(9)):
            model(x)
            stats.step()
            if i == 4: before = copy.deepcopy(stats), stats.snapshot(), pickle.loads(pickle.dumps(stats))
    for found in before:
        assert len(found.steps) == 5
        torch.testing.assert_close(found.history.tables(), stats.history.tables()[:5], rtol=0, atol=0)


def test_batches_of_another_size_and_numbers_that_are_not_finite():
    torch.manual_seed(0)
    model, given = net(), batches(12)
    given[5] = torch.randn(3, 6)
    given[8][0, 0] = torch.nan
    expected = by_hand(model, given)
    with hl.ActivationStats(include_paramless=True).on(model) as stats:
        for x in given:
            model(x)
            stats.step()
    mean = stats.history.values("mean")
    assert mean[:, 8].isnan().all()
    finite = [i for i in range(12) if i != 8]
    assert mean[:, finite].isfinite().all()
    means = torch.tensor([[outputs[name].mean() for outputs in expected] for name in stats.names])
    torch.testing.assert_close(mean[:, finite], means[:, finite])


def test_a_record_that_is_thinned_out_keeps_the_right_rows():
    torch.manual_seed(0)
    model, given = net(), batches(100)
    expected = by_hand(model, given)
    with hl.ActivationStats(include_paramless=True, max_rows=9).on(model) as stats:
        for x in given:
            model(x)
            stats.step()
    check(stats, [expected[step] for step in stats.steps])
    assert len(stats.steps) <= 9 and len({b - a for a, b in zip(stats.steps, stats.steps[1:])}) == 1


@pytest.mark.parametrize("mean", [0., 3., 1e3, -1e5])
def test_digits_far_from_zero(mean):
    torch.manual_seed(0)
    xs = [torch.randn(64, 6) + mean for _ in range(5)]
    model = nn.Sequential(nn.Identity())
    with hl.ActivationStats(include_paramless=True).on(model) as stats:
        for x in xs:
            model(x)
            stats.step()
    std = torch.tensor([x.double().std() for x in xs])
    rtol = 1e-5 if abs(mean) < 1e4 else 1e-3
    torch.testing.assert_close(stats.history.values("std")[0], std.float(), rtol=rtol, atol=0)


def test_gradients_of_several_steps():
    torch.manual_seed(0)
    model, given = net(), batches(10)
    expected = []
    with hl.ActivationStats(grads=True, include_paramless=True).on(model) as stats:
        for x in given:
            with hl.hook_outputs(leaves(model), grad=True, root=model) as hooks:
                model(x).square().sum().backward()
                expected.append({h.name: h.stored[0].flatten() for h in hooks})
            stats.step()
    means = torch.tensor([[row[name].double().mean() for row in expected] for name in stats.names]).float()
    torch.testing.assert_close(stats.gradients.values("mean"), means, rtol=1e-5, atol=1e-6)
