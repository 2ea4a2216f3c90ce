"""Is a loss a mean over the samples, and only once? Is a window scaled together with its target?"""
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl

pytestmark = pytest.mark.usefixtures("one_thread")


def found_in(model, loss_fn, batch, what, call=None, **sets):
    found = hl.preflight(model, loss_fn, batch, call=call, overfit=False, **sets)
    return [(f.sure, f.evidence) for f in found if f.what == what]


def network(n_in=8, n_out=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(n_in, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, n_out))


def classes(n=32): return torch.randn(n, 8), torch.arange(n) % 3


def by_len(out, y): return F.cross_entropy(out, y)/len(y)
def by_size(out, y): return F.cross_entropy(out, y, reduction="none").mean()/out.size(0)
def sum_twice(out, y): return F.cross_entropy(out, y, reduction="sum")/len(y)/len(y)
def own_squares(out, y): return (out.softmax(1) - F.one_hot(y, 3)).square().mean()/y.shape[0]
def of_each(out, y): return sum(F.cross_entropy(out[i:i + 1], y[i:i + 1]) for i in range(len(y)))/len(y)**2


class Averaged(nn.Module):
    def forward(self, out, y): return F.cross_entropy(out, y).div(y.numel())


def named(f): return getattr(f, "__name__", "averaged")


@pytest.mark.parametrize("loss_fn", [by_len, by_size, sum_twice, own_squares, of_each, Averaged()], ids=named)
def test_a_mean_is_divided_by_the_batch_again(loss_fn):
    (sure, said), *others = found_in(network(), loss_fn, classes(), "divided by the batch again")
    assert sure == "likely" and not others and "32 times too small" in said


def test_one_of_two_terms_is_divided_again():
    def call(model, batch):
        out = model(batch[0])
        return F.cross_entropy(out, batch[1]) + F.mse_loss(out, torch.ones_like(out))/len(out)
    (sure, said), = found_in(network(), None, classes(), "divided by the batch again", call)
    assert sure == "note" and "mse_loss" in said


def gathered(out, y): return F.cross_entropy(out, y)/8
def summed(out, y): return F.cross_entropy(out, y, reduction="sum")
def with_penalty(out, y): return F.cross_entropy(out, y) + .01*out.square().mean()
def of_pairs(out, y): return F.cross_entropy(F.normalize(out) @ F.normalize(out).T/.1, torch.arange(len(out)))


@pytest.mark.parametrize("loss_fn", [F.cross_entropy, gathered, summed, with_penalty, of_pairs], ids=named)
def test_other_reductions_are_not_divided_again(loss_fn):
    assert not found_in(network(), loss_fn, classes(), "divided by the batch again")


# Windows

def series(known, n=32, places=12, by_range=False):
    torch.manual_seed(1)
    x = 50 + torch.randn(n, places, 2).cumsum(1)
    seen = x[:, :known]
    if by_range:
        low = seen.amin(1, keepdim=True)
        return (x - low)/(seen.amax(1, keepdim=True) - low)
    return (x - seen.mean(1, keepdim=True))/(seen.std(1, keepdim=True) + 1e-5)


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.rnn, self.last = nn.GRU(2, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, x): return self.last(self.rnn(x)[0])


def ahead(model, x): return F.mse_loss(model(x[:, :-1]), x[:, 1:])
def last_four(model, batch): return F.mse_loss(model(batch[0])[:, -4:], batch[1])


@pytest.mark.parametrize("by_range", [False, True])
@pytest.mark.parametrize("form", ["next place", "past and future"])
def test_a_window_is_scaled_with_its_future(form, by_range):
    def looked(known):
        x = series(known, by_range=by_range)
        if form == "next place": return found_in(Forecast(), None, x, "target among the inputs", ahead)
        return found_in(Forecast(), None, (x[:, :8], x[:, 8:]), "target among the inputs", last_four)
    (sure, said), *others = looked(12)
    assert sure == "likely" and not others and "together" in said
    assert not looked(8)


def test_a_series_that_is_scaled_by_itself_and_classified():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(24, 3))
    assert not found_in(model, F.cross_entropy, (series(12), torch.arange(32) % 3), "target among the inputs")


# Classes

def halves(shuffled, n=400, kinds=4):
    torch.manual_seed(2)
    y = torch.arange(kinds).repeat_interleave(n//kinds)
    order = torch.randperm(n) if shuffled else torch.arange(n)
    x = torch.randn(n, 8)[order]
    return [list(zip(a.split(20), b.split(20))) for a, b in zip(x.split(n//2), y[order].split(n//2))]


def test_data_in_the_order_of_its_classes_is_cut():
    train, valid = halves(shuffled=False)
    mixed = [tuple(t[torch.randperm(200)].split(20)) for t in map(torch.cat, zip(*train))]
    train = list(zip(*mixed))
    found = found_in(network(n_out=4), F.cross_entropy, train[:2], "data not shuffled", train=train, valid=valid)
    assert [sure for sure, _ in found] == ["likely"] and "classes" in found[0][1]


def test_data_that_was_shuffled_before_it_was_cut():
    train, valid = halves(shuffled=True)
    assert not found_in(network(n_out=4), F.cross_entropy, train[:2], "data not shuffled", train=train, valid=valid)


def test_new_classes_for_a_loss_of_distances_are_a_note():
    train, valid = halves(shuffled=False)
    train = [(torch.cat([a[0], b[0]]), torch.cat([a[1], b[1]])) for a, b in zip(train[:5], train[5:])]
    def apart(out, y):
        same = y[:, None] == y
        return torch.where(same, torch.cdist(out, out), F.relu(1 - torch.cdist(out, out))).mean()
    found = found_in(network(n_out=4), apart, train[:2], "data not shuffled", train=train, valid=valid)
    assert [sure for sure, _ in found] == ["note"]
