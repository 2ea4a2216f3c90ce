"Labels that a loss makes by itself: all the same, or rightly so."
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl

N = 40


class Net(nn.Module):
    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items(): setattr(self, name, part)

    def forward(self, *given): raise NotImplementedError


def said(call, one=lambda: torch.randn(N, 6), **parts):
    torch.manual_seed(0)
    model = Net(**parts)
    found = hl.preflight(model, None, [(one(),), (one(),)], torch.optim.Adam(model.parameters()), overfit=False,
                         call=lambda model, batch: call(model, batch[0]))
    return [(f.sure, f.evidence) for f in found if f.what == "constant targets"]


def bce(score, value): return F.binary_cross_entropy_with_logits(score, torch.full_like(score, value))


# ---- The number for nothing is that of something

def queries(m, x, nothing):
    "Each sample has several places, of which one is found."
    score = m.kind(m.body(x).unflatten(1, (5, 4)))
    label = torch.full(score.shape[:2], nothing)
    label[torch.arange(len(x)), x[:, :5].argmax(1)] = 1
    return F.cross_entropy(score.transpose(1, 2), label)


def places(m, x, nothing):
    image = x.unflatten(1, (1, 2, 3))
    label = torch.where(image[:, 0] > 0, 1, nothing)
    return F.cross_entropy(m.conv(image), label)


def by_hand(m, x, nothing):
    "With a criterion, for whole samples."
    label = torch.where(x[:, 0] > 0, 2, 2 if nothing else 0)
    return nn.CrossEntropyLoss()(m.lin(x), label)


def ignores(m, x, nothing):
    "All that is not of the first class is left out."
    label = torch.where(x[:, 0] > 0, 1, -100 if nothing else 0)
    return F.cross_entropy(m.lin(x), label)


def domains(m, x, nothing):
    "Where samples come from: two calls, the second with the number of the first."
    own, other = m.lin(x), m.lin(x + 1)
    ones = torch.ones(len(x), dtype=torch.long)
    return F.cross_entropy(own, ones) + F.cross_entropy(other, ones if nothing else 0*ones)


OF_CLASSES = {
    "queries": (queries, {"body": nn.Linear(6, 20), "kind": nn.Linear(4, 2)}),
    "places": (places, {"conv": nn.Conv2d(1, 2, 1)}),
    "samples": (by_hand, {"lin": nn.Linear(6, 3)}),
    "left out": (ignores, {"lin": nn.Linear(6, 3)}),
    "two calls": (domains, {"lin": nn.Linear(6, 2)}),
}


@pytest.mark.parametrize("name", OF_CLASSES)
def test_one_class_for_all(name):
    call, parts = OF_CLASSES[name]
    (sure, evidence), = said(lambda m, x: call(m, x, 1), **parts)
    assert sure == "likely" and "cross_entropy are" in evidence
    assert not said(lambda m, x: call(m, x, 0), **parts)


# ---- Right and wrong pairs

def joined(m, x, wrong):
    score = torch.cat([(m.a(x)*m.b(x)).sum(1), (m.a(x)*m.b(x.roll(1, 0))).sum(1)])
    label = torch.ones_like(score)
    label[len(x):] = wrong
    return F.binary_cross_entropy_with_logits(score, label)


def of_probabilities(m, x, wrong):
    p = torch.cat([m.c(torch.cat([x, x], 1)), m.c(torch.cat([x, -x], 1))]).sigmoid()[:, 0]
    label = torch.cat([torch.ones(len(x)), torch.full((len(x),), float(wrong))])
    return nn.BCEWithLogitsLoss()(torch.cat([p[:len(x)], p[len(x):]]), label)


def as_columns(m, x, wrong):
    score = torch.cat([m.lin(x), m.lin(-x)], 1)
    label = torch.full_like(score, wrong)
    label[:, 0] = 1
    return F.binary_cross_entropy_with_logits(score, label)


OF_PAIRS = {"in a row": (joined, {"a": nn.Linear(6, 4), "b": nn.Linear(6, 4)}),
            "probabilities": (of_probabilities, {"c": nn.Linear(12, 1)}),
            "columns": (as_columns, {"lin": nn.Linear(6, 1)})}


@pytest.mark.parametrize("name", OF_PAIRS)
def test_wrong_pairs_are_called_right(name):
    call, parts = OF_PAIRS[name]
    (sure, evidence), = said(lambda m, x: call(m, x, 1), **parts)
    assert sure == "likely" and "are 1" in evidence
    assert not said(lambda m, x: call(m, x, 0), **parts)


def test_wrong_pairs_in_a_call_of_their_own_are_a_note():
    def call(m, x, wrong): return bce(m.lin(x), 1.) + bce(m.lin(-x), wrong)
    (sure, evidence), = said(lambda m, x: call(m, x, 1.), lin=nn.Linear(6, 1))
    assert sure == "note" and "For a generator" in evidence
    assert not said(lambda m, x: call(m, x, 0.), lin=nn.Linear(6, 1))


# ---- Rightly the same

def one_positive(m, x):
    "The own pair is in the first column."
    q, k = m.a(x), m.b(x)
    score = torch.cat([(q*k).sum(1, keepdim=True), q@m.b(x.flip(0)).T], 1)/.5
    return F.cross_entropy(score, torch.zeros(len(x), dtype=torch.long))


RIGHT = {
    "the own pair first": (one_positive, {"a": nn.Linear(6, 4), "b": nn.Linear(6, 4)}),
    "which of two is better": (lambda m, x: bce(m.lin(x) - m.lin(-x), 1.), {"lin": nn.Linear(6, 1)}),
    "nearly all are nothing": (lambda m, x: F.cross_entropy(m.lin(x), (x[:, 0] > 9).long()), {"lin": nn.Linear(6, 2)}),
    "all labels are left out": (lambda m, x: F.cross_entropy(m.lin(x), torch.full((len(x),), -100)) + m.lin(x).sum(),
                                {"lin": nn.Linear(6, 2)}),
}


@pytest.mark.parametrize("name", RIGHT)
def test_labels_that_are_rightly_the_same(name):
    call, parts = RIGHT[name]
    assert not said(call, **parts)
