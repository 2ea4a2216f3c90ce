"""`diagnose` on the runs of the bench: a part here, all with the slow tests; and each sentence, on a real run."""
import ast
import inspect
import sys
from copy import deepcopy
from functools import cache

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.diagnosis.diagnosing import FAULTS
from hooklab.findings.rules import KINDS, RULES
from support.loss_histories import findings as findings_about_losses
from support.portions import may_be_wrong, sample, sweep
from support.runs import broken, full, usual
from tests.bench.bench_diagnose import judge
from tests.bench.diagnose_cases import faults, healthy
from tests.diagnosis.test_norms_in_float16 import by_squares, diagnosed
from tests.diagnosis.test_woken_norms import findings as norms_that_wake

pytestmark = pytest.mark.usefixtures("one_thread")
judged = cache(judge)
in_reach = [case for case in faults if case.reach]
EVERY = 18  # one healthy run in so many is run here, and all with the slow tests


def first_with(what):
    "The first run of the bench that has this fault as its only cause."
    return next((case for case in in_reach if case.causes == {what}), None)


single = [what for what in FAULTS if first_with(what) is not None]


@pytest.mark.parametrize("what", single)
def test_a_fault_is_named(what):
    assert what in judged(first_with(what)).ids


@pytest.mark.parametrize("case", healthy[::EVERY], ids=lambda case: case.name)
def test_a_healthy_run_is_left_alone(case):
    verdict = judged(case)
    assert not verdict.error and not verdict.alarms


OTHER = 1  # the rules were developed with 0


def some_faults(): return sample(5, in_reach, name=lambda case: case.name, kind=lambda case: case.kind)
def some_healthy(): return sample(5, healthy, name=lambda case: case.name)


def few(flags, rate): return sum(flags) <= may_be_wrong(rate, len(flags))


@sweep
def test_how_right_it_is():
    verdicts = [judged(fault, OTHER) for fault in some_faults()]
    firsts = [v.first for v in verdicts if v.first is not None]
    assert few([not v.cause for v in verdicts], .2) and few([not v.relevant for v in verdicts], .1)
    assert few([not first for first in firsts], .15)


@sweep
def test_how_rarely_it_alarms():
    verdicts = [judged(run, OTHER) for run in some_healthy()]
    certain = [any(alarm.startswith("certain") for alarm in v.alarms) for v in verdicts]
    assert few(certain, .01) and few([bool(v.alarms) for v in verdicts], .03)


# Sentences

def sentences(room) -> list[str]:
    "The constant parts of what a room can say: strings with several words, but for docstrings, kinds and their names."
    tree = ast.parse(inspect.getsource(room))
    documented = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module)]
    documents = {id(node.body[0].value) for node in documented if isinstance(node.body[0], ast.Expr)}
    for node in documented:
        for entry in getattr(node, "decorator_list", []): documents |= {id(part) for part in ast.walk(entry)}
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in documents
            and isinstance(node.value, str) and node.value.count(" ") > 3 and node.value not in KINDS["diagnose"]]


def trained(end=(), loss_of=F.cross_entropy, lr=.05, training=True, scores=None, begin=None, record=None):
    "What is said of a short run on the digits."
    torch.manual_seed(0)
    parts = [nn.Flatten(), nn.Linear(64, 32), *(scores or [nn.ReLU()]), nn.Linear(32, 10), *end]
    model = nn.Sequential(*parts).train(training)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=.9)
    if begin:
        with torch.no_grad(): begin(model[1])
    record = record or hl.ActivationStats.for_diagnosis()
    with record.on(model, optimizer=optimizer):
        for _ in range(3):
            for x, y in hl.digits().train:
                optimizer.zero_grad()
                loss = loss_of(model(x), y)
                loss.backward()
                optimizer.step()
                record.step(loss)
    return list(hl.diagnose(record))


class Times(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by

    def forward(self, x): return x*self.by


class OpenGates(nn.Module):
    "An LSTM whose gates are all open: its outputs stay at their upper end."
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(1, 32, batch_first=True)
        nn.init.constant_(self.rnn.bias_ih_l0, 20)

    def forward(self, x): return self.rnn(x.unflatten(1, (32, 1)))[0][:, -1]


def all_alike(linear):
    linear.weight.fill_(.02)
    linear.bias.zero_()


def far_below_zero(linear): linear.bias.fill_(-10)
def one(linear): linear.bias.fill_(1)


def one_number(output, y): return F.mse_loss(output, y[:, None].float())


def root_of_zero():
    "A loss whose gradient is not finite in a step that is not measured."
    calls = iter(range(1000))
    return lambda o, y: F.cross_entropy(o, y) + ((o - o.detach()).square().sum().sqrt() if next(calls) == 20 else 0)


def updated_by_hand() -> list:
    torch.manual_seed(0)
    model, x, y = nn.Linear(4, 2), torch.randn(16, 4), torch.arange(16) % 2
    with hl.ActivationStats.for_diagnosis().on(model) as record:
        for _ in range(12):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            with torch.no_grad():
                for p in model.parameters(): p -= .01*p.grad
            record.step(loss)
    return list(hl.diagnose(record))


@cache
def called_past_its_end() -> list:
    "A cosine made for ten calls, in a run of sixty steps."
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
    optimizer = torch.optim.SGD(model.parameters(), .05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as s:
        for _ in range(60):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(torch.randn(16, 10)), torch.randint(3, (16,)))
            loss.backward()
            optimizer.step()
            schedule.step()
            s.step(loss)
    return [*hl.diagnose(s)]


@cache
def without_backward(told) -> list:
    "A loss of which the record gets the graph, or the number only."
    torch.manual_seed(0)
    model, x, y = nn.Linear(4, 2), torch.randn(16, 4), torch.arange(16) % 2
    optimizer = torch.optim.SGD(model.parameters(), .05)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as record:
        for _ in range(40):
            loss = F.cross_entropy(model(x), y)
            optimizer.step()
            record.step(told(loss))
    return list(hl.diagnose(record))


@cache
def averaged_in_16_bits() -> list:
    torch.manual_seed(0)
    model, x, y = nn.Linear(4, 2).bfloat16(), torch.randn(16, 4).bfloat16(), torch.arange(16) % 2
    optimizer, average = torch.optim.Adam(model.parameters(), .02), deepcopy(model)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as record:
        for _ in range(40):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for old, new in zip(average.parameters(), model.parameters()): old.lerp_(new, .001)
            record.step(loss)
    return list(hl.diagnose(record))


def runs_of_their_own() -> list:
    "What no run of the bench shows."
    return [
        *updated_by_hand(),
        *called_past_its_end(),
        *without_backward(torch.Tensor.clone),
        *without_backward(torch.Tensor.item),
        *averaged_in_16_bits(),
        *norms_that_wake(nn.Module.train),
        *diagnosed(by_squares, torch.float16),
        *trained([nn.Linear(10, 1), nn.Softmax(dim=1)], one_number),
        *trained(loss_of=root_of_zero()),
        *trained([nn.Softmax(dim=1)], F.nll_loss),
        *trained(loss_of=F.nll_loss, lr=1e-3),
        *trained([Times(30), nn.Tanh()], lr=.02),
        *trained(scores=[OpenGates()]),
        *trained(training=False),
        *trained(loss_of=lambda output, y: 0*output.sum() + 3),
        *trained(scores=[Times(0), nn.Softmax(dim=1)]),
        *trained(begin=all_alike),
        *trained(scores=[nn.BatchNorm1d(32), nn.ReLU()], begin=one),
        *trained(scores=[nn.GELU()], begin=far_below_zero, record=hl.ActivationStats(include_paramless=True))]


# Runs of the bench that together say what the runs above do not. They come first, so that the rest need not run.
TELLING = {
    "NaN or Inf: a missing value in one row of a hundred",
    "activation before the loss: F.softmax in forward, digits MLP",
    "activation before the loss: ReLU as the output of a regression",
    "activation before the loss: ReLU before cross entropy, digits MLP",
    "activation before the loss: sigmoid before BCE with logits, digits MLP",
    "activation before the loss: sigmoid before cross entropy, digits MLP",
    "batch norm: digits CNN, momentum 1, batches of 4",
    "clipping too tight: digits MLP, norm 1 before the scale is taken out",
    "clipping too tight: digits MLP, norm 1e-4",
    "constant init: digits tanh MLP, 0.05",
    "data bug: digits, all images are the first",
    "data bug: reviews, all tokens are padding",
    "dead attention: recall, queries and keys x 30",
    "dropout too strong: waves LSTM, 0.97 of the inputs",
    "embedding: reviews, from_pretrained is frozen, four numbers a word",
    "eval mode: digits MLP with batch norm, after a validation at step 15",
    "inputs not scaled: digits MLP, 0 to 255, SGD",
    "inputs not scaled: tables, one feature about 100,000",
    "no zero_grad: digits MLP, SGD",
    "scheduler each batch: digits MLP, StepLR(3)",
    "step before backward: waves LSTM, Adam",
    "step or backward missing: no backward, tables",
    "step or backward missing: no step, digits CNN",
    "targets not scaled: regression, x 1,000, SGD",
    "weight decay too strong: digits CNN, Adam with 1",
    "weight decay too strong: digits MLP, SGD with 2",
    "wrong optimizer: digits CNN, of a deep copy",
    "wrong sign: minus squared error, regression",
    "zero init: digits MLP, all zero"}


def findings_of_runs():
    "What is found in the runs above, those of the tests, and those of the bench, one run after the other."
    yield runs_of_their_own()
    yield findings_about_losses()
    for name in broken:
        for look in full, usual: yield hl.diagnose(look(name, 0))
    for case in sorted((*faults, *healthy), key=lambda case: f"{case.kind}: {case.name}" not in TELLING):
        yield judged(case, OTHER).findings


def unsaid(texts: list[str]) -> list[str]:
    "The texts that no run says; as soon as all are said, no further run is asked."
    for findings in findings_of_runs():
        said = "\n".join(f"{f.evidence}\n{f.advice}" for f in findings)
        texts = [text for text in texts if text not in said]
        if not texts: break
    return texts


BESIDE = "schedule_faults", "copy_faults"  # their runs are those of test_beside_the_model.py
ROOMS = {each.look.__module__ for each in RULES if each.tool == "diagnose"}
SAID = sorted(room for room in ROOMS if not room.endswith(BESIDE))


@pytest.mark.slow
@pytest.mark.parametrize("room", SAID, ids=lambda room: room.rpartition(".")[2])
def test_each_sentence_is_said_of_a_run(room):
    assert not unsaid(sentences(sys.modules[room]))
