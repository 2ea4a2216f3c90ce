"""What a diagnosis concludes from an estimate: less where the doubt straddles a limit, and the same elsewhere."""
from functools import cache

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.diagnosis.diagnosing import ON_ESTIMATES
from hooklab.diagnosis.evidence import Run
from hooklab.findings.levels import SURE
from hooklab.stats.records.doubts import values_with_offsets

pytestmark = pytest.mark.usefixtures("one_thread")


@cache
def trained():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 3))
    optimizer = torch.optim.SGD(model.parameters(), .2)
    with hl.ActivationStats.for_diagnosis(turns=None).on(model, optimizer=optimizer) as s:
        for step in range(50):
            x = torch.randn(32, 10, generator=torch.Generator().manual_seed(step))
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), x[:, :3].argmax(1))
            loss.backward()
            optimizer.step()
            s.step(loss)
    return s


def with_row(kind, row, change, doubt=0.):
    "The record with other numbers in one row, and with a doubt about the estimates."
    s = trained().snapshot()
    history = s.histories[kind]
    tables = history.tables().clone()
    tables[:, history.rows.index(row)] = change(tables[:, history.rows.index(row)], tables[:, 0])
    tables[:, history.rows.index("doubt" if kind == "updates" else "unseen")] = doubt
    history.fill(history.steps, tables, history.place)
    return s


SWEEPS = {  # which numbers are changed, how, and what is then found at one end
    "small steps": ("updates", "update", lambda f: lambda x, n: x*f, [10**(-e/20) for e in range(20, 80)],
                    "learning rate too small"),
    "large steps": ("updates", "update", lambda f: lambda x, n: x*f, [1.1**e for e in range(60)],
                    "learning rate too large"),
    "zeros": ("activations", "near_zero", lambda f: lambda x, n: n*f, [.5 + e/120 for e in range(61)], None)}


@pytest.mark.parametrize("name", SWEEPS)
def test_a_limit_that_the_doubt_straddles_makes_a_finding_less_sure(name):
    kind, row, change, factors, expected = SWEEPS[name]
    lowered, kept = 0, 0
    for factor in factors:
        exact = {f.what: f for f in hl.diagnose(with_row(kind, row, change(factor)))}
        rough = {f.what: f for f in hl.diagnose(with_row(kind, row, change(factor), .1 if kind == "updates" else 1.))}
        for what, finding in exact.items():
            level = SURE.index(rough[what].sure) if what in rough else len(SURE)
            assert level >= SURE.index(finding.sure), (factor, what)
            if what in rough: assert (ON_ESTIMATES in rough[what].evidence) == (level > SURE.index(finding.sure))
            if what == expected:
                lowered += level > SURE.index(finding.sure)
                kept += level == SURE.index(finding.sure)
    if expected: assert lowered and kept > 5


def test_without_estimates_nothing_is_asked_twice(monkeypatch):
    from hooklab.diagnosis import diagnosing
    made = []
    monkeypatch.setattr(diagnosing, "Run", lambda *given: made.append(given) or Run(*given))
    hl.diagnose(trained())
    assert len(made) == 1
    hl.diagnose(with_row("updates", "update", lambda x, n: x, .05))
    assert len(made) == 1 + 1 + 4


def test_estimates_that_may_be_off_are_read_as_they_may_be():
    s = with_row("updates", "update", lambda x, n: x, .1)
    update = s.updates.values("update").double()
    torch.testing.assert_close(values_with_offsets(s.updates, "update", (2, 2)), update*1.2)
    torch.testing.assert_close(values_with_offsets(s.updates, "update", (2, -2))[:, 0], update[:, 0]*1.2)
    torch.testing.assert_close(Run(s, (2, 2)).lengths("data"), s.updates.values("data").double()*(1 - 2/16))
    zeros = with_row("activations", "near_zero", lambda x, n: n, 1.)
    assert values_with_offsets(zeros.history, "near_zero", (2, 2)).max() == 1
    assert values_with_offsets(zeros.history, "near_zero", (-2, -2)).max() < 1
    unknown = with_row("activations", "near_zero", lambda x, n: n/2, torch.nan)
    assert values_with_offsets(unknown.history, "std", (2, 2)).gt(unknown.history.values("std")).all()
