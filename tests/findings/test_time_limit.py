"""The time limit of preflight is that of the whole call, up to the pass that is running when it ends."""
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.findings import time_limit
from hooklab.findings.rules import rules_that_need
from hooklab.findings.time_limit import TimeIsUp, TimeLimit

pytestmark = pytest.mark.usefixtures("one_thread")
BY_HEART = "The loss falls when the model trains on 16 samples."


class Clock:
    "Shows a time that only a pass, or the reading of a batch, moves on."
    def __init__(self): self.time = 0.
    def __call__(self): return self.time


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(time_limit, "now", found)
    return found


class Slow(nn.Module):
    "Each pass takes a second. It may not be able to learn, or fail when it is called after a time."
    def __init__(self, clock, learns=True, seconds=1.):
        super().__init__()
        self.a, self.b = nn.Linear(4, 16), nn.Linear(16, 2)
        self.clock, self.learns, self.seconds = clock, learns, seconds

    def forward(self, x):
        self.clock.time += self.seconds
        return self.b((self.a(x) if self.learns else 0*self.a(x)).relu())


class Reads:
    "A loader that needs so long for a batch."
    def __init__(self, clock, seconds, n=50): self.clock, self.seconds, self.n = clock, seconds, n
    def __len__(self): return self.n
    def __iter__(self):
        for _ in range(self.n):
            self.clock.time += self.seconds
            yield batch()


def batch(): return (x := torch.randn(32, 4)), (x[:, 0] > 0).long()


def looked(model, **options):
    torch.manual_seed(0)
    given = options.pop("given", None) or [batch(), batch()]
    return hl.preflight(model, F.cross_entropy, given, torch.optim.Adam(model.parameters(), 1e-2), **options)


@pytest.mark.parametrize("overfit", [True, False])
@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("seconds", [0., .5, 3., 10., 37.5, 100.])
def test_no_pass_begins_after_the_limit(clock, seconds, learns, overfit):
    found = looked(Slow(clock, learns), seconds=seconds, overfit=overfit)
    assert found.seconds == clock.time < seconds + 1 or seconds == 0 and clock.time == 1
    said = f"the time limit of {seconds:g} s was reached", "would take longer than", "steps fit into"
    assert any(words in why for why in found.not_looked_at.values() for words in said)


def test_cheap_checks_come_first_and_learning_last(clock):
    "What can be read from the first pass is always looked at, and more is with more time."
    known = [{c.claim for c in looked(Slow(clock), seconds=seconds).checks if c.state != "not looked at"}
             for seconds in (0., 6., 60., 1000.)]
    first = {check.claim for check in rules_that_need("batch")}
    assert len(first & known[0]) > len(first)/2 and len(first & known[1]) >= len(first) - 1
    assert len(known[0]) < len(known[1]) < len(known[2]) < len(known[3])
    assert BY_HEART not in known[1] and BY_HEART in known[3]


def test_with_time_enough_everything_is_found(clock):
    quick = looked(Slow(clock, learns=False, seconds=0.))
    slow = looked(Slow(clock, learns=False), seconds=math.inf)
    assert [(f.what, f.sure) for f in quick] == [(f.what, f.sure) for f in slow] and quick
    assert not any("time limit" in why for why in (quick.not_looked_at | slow.not_looked_at).values())


def test_learning_shares_what_is_left(clock):
    "A third of it is for the user's optimizer, so that Adam has time to show whether the rate is to blame."
    torch.manual_seed(0)
    model = Slow(clock, seconds=.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    found = hl.preflight(model, F.cross_entropy, [batch(), batch()], optimizer, seconds=60.)
    assert "learning rate too small" in found and clock.time < 60.1, f"{found!r}"


def test_reading_takes_a_fifth_for_each_data_set(clock):
    found = looked(Slow(clock, seconds=0.), train=Reads(clock, 1.), valid=Reads(clock, 1.), seconds=20.)
    said = " ".join(c.said for c in found.checks)
    assert "the first 160 samples of train, which took 5.0 s" in said and clock.time == 10, said
    found = looked(Slow(clock, seconds=0.), given=Reads(clock, 30.), seconds=20.)
    assert found.not_looked_at[BY_HEART] == "the time limit of 20 s was reached"


def test_a_limit(clock):
    limit = TimeLimit(3)
    clock.time += 2
    limit.check()
    assert (limit.took, limit.left) == (2, 1) and TimeLimit().left == math.inf
    clock.time += 1
    with pytest.raises(TimeIsUp, match="the time limit of 3 s was reached"): limit.check()
    assert not issubclass(TimeIsUp, Exception)


def test_everything_is_as_it_was_when_time_is_up(clock):
    for seconds in range(0, 80, 7):
        model = Slow(clock)
        before = [p.clone() for p in model.parameters()]
        looked(model, seconds=seconds)
        assert all(map(torch.equal, before, model.parameters())) and model.training
        assert all(p.grad is None and p.requires_grad for p in model.parameters()) and torch.is_grad_enabled()
