"""Healthy runs that are short, slow or have one odd batch are left alone; the faults that look like them are not."""
import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler as schedules

import hooklab as hl
from hooklab.diagnosis.evidence import Run
from hooklab.diagnosis.loop_faults import scheduler_each_batch
from hooklab.diagnosis.loss_curve import loss_course
from hooklab.stats.records.facts import RunFacts

pytestmark = pytest.mark.usefixtures("one_thread")


# Schedules

def by_factor(factor): return lambda optimizer, n: schedules.LambdaLR(optimizer, lambda i: factor(i, n))


def one_cycle(shape):
    return lambda optimizer, n: schedules.OneCycleLR(optimizer, .1, total_steps=n + 1, anneal_strategy=shape)


ENDS = {
    "linear": by_factor(lambda i, n: 1 - i/n), "quadratic": by_factor(lambda i, n: (1 - i/n)**2),
    "cosine": lambda optimizer, n: schedules.CosineAnnealingLR(optimizer, n),
    "OneCycle": one_cycle("cos"), "OneCycle, linear": one_cycle("linear"),
    "warm-up and linear": by_factor(lambda i, n: min((i + 1)/5, (n - i)/(n - 5))),
    "the last half linear": by_factor(lambda i, n: min(1, 2 - 2*i/n)),
    "square root": by_factor(lambda i, n: (1 + i)**-.5)}
FALLS = {
    "exponential": lambda optimizer, n: schedules.ExponentialLR(optimizer, .85),
    "warm-up and exponential": by_factor(lambda i, n: min((i + 1)/3, .8**(i - 2))),
    "steps": lambda optimizer, n: schedules.StepLR(optimizer, 3),
    "linear, for epochs": by_factor(lambda i, n: max(0., 1 - i/5))}


def named_a_fault(make, n):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], .1)
    schedule, rates = make(optimizer, n), []
    for _ in range(n):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    rates = torch.tensor(rates, dtype=torch.double)
    return bool([*scheduler_each_batch(SimpleNamespace(facts=RunFacts(), rates=rates, log_span=lambda row: (row, n)))])


@pytest.mark.parametrize("n", [21, 25, 30, 60, 300])
@pytest.mark.parametrize("name", ENDS)
def test_a_schedule_that_ends_with_the_run(name, n): assert not named_a_fault(ENDS[name], n)


@pytest.mark.parametrize("n", [25, 30, 60, 300])
@pytest.mark.parametrize("name", FALLS)
def test_a_schedule_for_epochs(name, n): assert named_a_fault(FALLS[name], n)


# Losses

@pytest.fixture(scope="module")
def digits():
    x, y = hl.digits().train.dataset.tensors
    return x.flatten(1), y


def trained(model, data, n, lr=3e-3, labels=lambda i, y: y, given=lambda loss: loss, rate=None):
    "The record of a run."
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr)
    schedule = schedules.LambdaLR(optimizer, rate or (lambda i: 1))
    (x, y), chosen = data, torch.Generator().manual_seed(0)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as s:
        for i in range(n):
            rows = torch.randint(len(x), (32,), generator=chosen)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[rows]), labels(i, y[rows]))
            loss.backward()
            optimizer.step()
            schedule.step()
            s.step(given(loss))
    return s


def alarms(stats): return {f.what for f in hl.diagnose(stats) if f.sure != "note"}


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def shuffled(i, y): return y[torch.randperm(len(y))]
def wrong_in(step): return lambda i, y: (y + 1 + torch.arange(len(y)) % 9) % 10 if i == step else y


GIVEN = {"all": lambda loss: loss, "a sum": lambda loss: 32*loss, "none": lambda loss: None,
         "another one": lambda loss: loss + torch.rand(())}


@pytest.mark.parametrize("given, step, n", [
    ("all", 125, 138), ("none", 125, 138), ("a sum", 50, 70), ("another one", 50, 70)])
def test_one_batch_of_wrong_labels(given, step, n, digits):
    found = alarms(trained(net(), digits, n, labels=wrong_in(step), given=GIVEN[given]))
    assert {*found} <= {"spike"}  # which it is


@pytest.mark.parametrize("given", ["all", "none"])
def test_labels_that_belong_to_other_inputs(given, digits):
    torch.manual_seed(0)
    assert "loss does not fall" in alarms(trained(net(), digits, 138, labels=shuffled, given=GIVEN[given]))


def test_the_course_is_read_from_all_losses_that_fit(digits):
    losses = []
    for given in GIVEN.values():
        course = loss_course(Run(trained(net(), digits, 60, given=given)))
        losses.append((sum(map(len, course.thirds)), course.late))
    (n, late), scaled, looked_at, other = losses
    assert n == scaled[0] == 60 and math.isclose(scaled[1], late, rel_tol=1e-4)
    assert looked_at == other and looked_at[0] < 30 and math.isclose(looked_at[1], late, rel_tol=.5)


def test_a_warm_up_over_the_whole_record(digits):
    assert not alarms(trained(net(), digits, 60, rate=lambda i: (i + 1)/2000))


class Lora(nn.Module):
    "A layer that stays as it is, and beside it a product of two narrow ones, which begins at zero."
    def __init__(self, layer):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(4, layer.in_features)/8)
        self.b = nn.Parameter(torch.zeros(layer.out_features, 4))

    def forward(self, x): return self.layer(x) + x@self.a.T@self.b.T


@pytest.mark.parametrize("lr, n", [(1e-3, 50), (3e-4, 100)])
def test_a_part_that_begins_at_zero_begins_slowly(lr, n, digits):
    model = net()
    with torch.no_grad(): model[2].weight *= .1
    model = nn.Sequential(Lora(model[0]), nn.ReLU(), Lora(model[2]))
    assert not alarms(trained(model, digits, n, lr))


# A head that is new, on a body that has learned

def with_body(of_body, of_head):
    "What is said of the rate of a run whose body and head have rates of their own."
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
    head = nn.Linear(32, 10)
    model = nn.Sequential(nn.Flatten(), body, head)
    optimizer = torch.optim.Adam([{"params": body.parameters(), "lr": of_body},
                                  {"params": head.parameters(), "lr": of_head}])
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as s:
        for x, y in [*hl.digits().train]*3:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            s.step(loss)
    return [f.sure for f in hl.diagnose(s) if f.what == "learning rate too small"]


def test_a_new_head_moves_and_its_body_hardly_does():
    assert not with_body(1e-6, 3e-3)
    assert with_body(1e-6, 1e-6) == ["possible"]
