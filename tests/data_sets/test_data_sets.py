"""What preflight says of whole data sets, what it leaves alone, and that it leaves no trace of having read them."""
import random
import warnings
from contextlib import suppress

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, TensorDataset

import hooklab as hl
from hooklab.data_sets.reading_sets import DataSets, LossTargets, read_set
from hooklab.findings import time_limit
from hooklab.findings.rules import NotLookedAt, pages, rules_that_need

pytestmark = pytest.mark.usefixtures("one_thread")
MINE = {"data not shuffled", "one class is most of the data", "validation differs from training", "labels look random",
        "validation repeats training", "samples repeat", "inputs of other rows", "target among the inputs",
        "constant inputs", "loss does not fit the targets", "data changed by reading"}


class Small(nn.Module):
    "For images, tables and tokens."
    def __init__(self, n_out=4):
        super().__init__()
        self.words, self.out = nn.Embedding(1000, 6), nn.LazyLinear(n_out)

    def forward(self, x): return self.out(x.flatten(1) if x.is_floating_point() else self.words(x).mean(1))


def batches(x, y, n=25): return [(x[i:i + n], y[i:i + n]) for i in range(0, len(x), n)]


def said(train, valid=None, loss=F.cross_entropy, n_out=4, batch=None, **options):
    torch.manual_seed(1)
    model = Small(n_out)
    batch = batch or (train[:2] if isinstance(train, list) else train)
    with warnings.catch_warnings(action="ignore"):
        first = batch[0] if isinstance(batch, list) else next(iter(batch))
        model(first[0] if isinstance(first, list | tuple) else first["x"])
        found = hl.preflight(model, loss, batch, train=train, valid=valid, overfit=False, **options)
    return {f.what: (f.sure, f.evidence) for f in found if f.what in MINE}


def table(n=400, classes=4):
    "Features that tell the class, in random order."
    y = torch.arange(n) % classes
    x = torch.randn(n, 6)
    x[:, 0] += 2*y
    return x, y


def pictures(n=200):
    x, y = torch.randn(n, 3, 6, 6), torch.arange(n) % 4
    return x*.2 + torch.tensor([.5, .4, .2])[:, None, None] + .1*y[:, None, None, None], y


def tokens(n=400, shift=0):
    y = torch.arange(n) % 4
    return torch.randint(0, 100, (n, 8)) + 100*y[:, None]*0 + shift, y


def in_order(x, y):
    order = y.argsort(stable=True)
    return batches(x[order], y[order])


def numbers(n=400):
    x = torch.randn(n, 6)
    return x, x[:, :1] + .1*torch.randn(n, 1)


def with_column(x, column): return torch.cat([x, column[:, None].float()], 1)
def codes(y): return torch.tensor([.3, .1, .9, .7])[y]
def brightened(x, y): return 255*x, y


class Kept(Dataset):
    "Samples in memory, which `change` makes ready when they are read."
    def __init__(self, x, y, change): self.x, self.y, self.change = x, y, change
    def __len__(self): return len(self.x)
    def __getitem__(self, i): return self.change(self.x[i]), self.y[i]


MEAN, DEVIATION = torch.tensor([.5, .4, .2])[:, None, None], torch.tensor([.2, .1, .3])[:, None, None]
def of_channels(x): return x.sub_(MEAN).div_(DEVIATION)


def constant_column(x, y): return torch.cat([x[:, :5], 0*x[:, :1] + .1], 1), y


FAULTS = {
    "normalized in place": ("data changed by reading", "likely", "Part 0 had a mean of",
        lambda: (DataLoader(Kept(*pictures(), of_channels), 25, shuffle=True),)),
    "a table in place": ("data changed by reading", "likely", "read twice",
        lambda: (DataLoader(Kept(*constant_column(*table()), lambda x: x.sub_(torch.arange(6.)/3)), 25),)),
    "an array in place": ("data changed by reading", "likely", "read twice",
        lambda: (DataLoader(Kept(table()[0].numpy(), table()[1], lambda x: np.divide(x, 2, out=x)), 25),)),
    "a table in order": ("data not shuffled", "likely", "1 of 4 classes", lambda: (in_order(*table()),)),
    "pictures in the order of folders": ("data not shuffled", "likely", "the labels are sorted",
        lambda: (in_order(*pictures()), pictures())),
    "only the first class was reached": ("data not shuffled", "likely", "validation has 4 classes",
        lambda: (in_order(*table(9000)), table(200))),
    "pictures to 255": ("validation differs from training", "likely", "in train, and",
        lambda: (batches(*pictures()), brightened(*pictures()))),
    "a table that was not normalized": ("validation differs from training", "likely", "standard deviation",
        lambda: (batches(*table()), (lambda x, y: (5*x + 3, y))(*table(200)))),
    "one column in another unit": ("validation differs from training", "possible", "Feature 2",
        lambda: (batches(*table()), (lambda x, y: (x*torch.tensor([1, 1, 40., 1, 1, 1])[None]*1., y))(*table(200)))),
    "blue for red": ("validation differs from training", "likely", "reversed",
        lambda: (batches(*pictures()), (lambda x, y: (x.flip(1), y))(*pictures()))),
    "another vocabulary": ("validation differs from training", "likely", "encoded",
        lambda: (batches(*tokens()), tokens(200, shift=300))),
    "classes from one": ("validation differs from training", "likely", "valid has classes that never occur",
        lambda: (batches(*table()), (lambda x, y: (x, y + 1))(*table(200)))),
    "a class that validation lacks": ("validation differs from training", "likely", "train has classes",
        lambda: (batches(*table()), table(200, 3))),
    "copies in validation": ("validation repeats training", "likely", "exact copies",
        lambda: (batches(*(data := table())), tuple(t[:100] for t in data))),
    "a tenth of validation": ("validation repeats training", "possible", "exact copies",
        lambda: (batches(*(data := pictures())), tuple(map(torch.cat, zip(pictures(180), [t[:20] for t in data]))))),
    "each sample twice": ("samples repeat", "note", "different labels",
        lambda: (batches(*(lambda x, y: (x[torch.arange(400) % 150], y))(*table())),)),
    "an index that is cut off": ("samples repeat", "note", "copies of others",
        lambda: (batches(*(lambda x, y: (x[torch.arange(200) % 64], y))(*pictures())),)),
    "the class as a feature": ("target among the inputs", "likely", "Feature 6",
        lambda: (batches(*(lambda x, y: (with_column(x, y), y))(*table())),)),
    "a code of the class": ("target among the inputs", "likely", "one value for each class",
        lambda: (batches(*(lambda x, y: (with_column(x, codes(y)), y))(*table())),)),
    "mostly one class": ("one class is most of the data", "note", "class 0",
        lambda: (batches(*(lambda x, y: (x, (torch.rand(400) < .06).long()))(*table())),)),
    "shuffled apart": ("labels look random", "note", "by chance",
        lambda: (batches(*(lambda x, y: (x, y[torch.randperm(len(y))]))(*table())),)),
    "labels of the row before": ("inputs of other rows", "likely", "misaligned by one row",
        lambda: (batches(*(lambda x, y, order: (x[order], y[order].roll(1)))(*table(), torch.randperm(400))),)),
    "a column of zeros": ("constant inputs", "note", "1 of 7 features",
        lambda: (batches(*(lambda x, y: (with_column(x, 0*y), y))(*table())),)),
    "a class beyond the outputs": ("loss does not fit the targets", "certain", "outputs for 4 classes",
        lambda: (batches(*(lambda x, y: (x, torch.where(torch.arange(400) == 390, 4, y)))(*table())),)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_of_data_are_named(name):
    what, sure, words, make = FAULTS[name]
    torch.manual_seed(0)
    train, *valid = make()
    found = said(train, *valid)
    assert what in found, found
    assert found[what][0] == sure and words in found[what][1], found[what]


def said_of(sets):
    "What the rules about data sets find, by the kind of finding."
    found = []
    for rule in rules_that_need("sets"):
        with suppress(NotLookedAt): found += rule.look(sets)
    return {f.what: (f.sure, f.evidence) for f in found}


# these need a batch that was read before, or a loss
NEED_MORE = "normalized in place", "a table in place", "an array in place", "a class beyond the outputs"


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in NEED_MORE])
def test_faults_of_data_are_named_without_a_model(name):
    what, sure, words, make = FAULTS[name]
    torch.manual_seed(0)
    train, *valid = make()
    found = said_of(DataSets(read_set(train, "train"), *(read_set(data, "valid") for data in valid)))
    assert found[what][0] == sure and words in found[what][1], found


def test_the_loss_is_known_without_a_model():
    train = read_set(batches(*table()), "train")
    assert not said_of(DataSets(train, loss_targets=lambda: [LossTargets("cross_entropy", 4)]))
    too_few = LossTargets("nll_loss", 3)
    assert "loss does not fit the targets" in said_of(DataSets(train, loss_targets=lambda: [too_few]))
    left_out = LossTargets("cross_entropy", 3, ignore_index=3)
    assert "loss does not fit the targets" not in said_of(DataSets(train, loss_targets=lambda: [left_out]))
    others = LossTargets("cross_entropy", 3, from_batch=False)  # such as targets that `call` has made
    assert not said_of(DataSets(train, loss_targets=lambda: [others]))


class GoesOn(IterableDataset):
    "A stream, of which each reading gives what comes next."
    def __init__(self): self.rows = zip(*table(2000))
    def __iter__(self): return self.rows


OWN = torch.Generator().manual_seed(0)  # of which no reading knows the state
UNCHANGED = {
    "a copy": lambda: DataLoader(Kept(*pictures(), lambda x: of_channels(x.clone())), 25, shuffle=True),
    "noise of its own": lambda: DataLoader(Kept(*table(), lambda x: x + torch.randn(6, generator=OWN)), 25),
    "a mirror of its own": lambda: DataLoader(
        Kept(*pictures(), lambda x: x.flip(2) if torch.rand((), generator=OWN) < .5 else x), 25),
    "a brightness of its own": lambda: DataLoader(
        Kept(*pictures(), lambda x: x*torch.rand((), generator=OWN)), 25),
    "a stream": lambda: DataLoader(GoesOn(), 25), "lists": lambda: batches(*table())}


def test_only_what_was_read_twice_is_called_unchanged():
    "A batch that preflight gets may be another one than the first of the training data."
    claim, x, y = "Reading the training data doesn't change it.", *table()
    def looked(batch):
        found = hl.preflight(nn.Linear(6, 4), F.cross_entropy, batch, train=batches(x, y), overfit=False)
        return found.not_looked_at.get(claim)
    assert looked(batches(x, y)) is None and "a different one" in looked((x[100:125], y[100:125]))


@pytest.mark.parametrize("name", UNCHANGED)
def test_data_that_reading_does_not_change(name):
    torch.manual_seed(0)
    assert "data changed by reading" not in said(UNCHANGED[name]())


def test_every_finding_of_data_is_planted():
    assert {what for what, *_ in FAULTS.values()} >= {*pages()["data-sets"]}


def test_a_target_in_another_unit_and_numbers_of_another_scale():
    torch.manual_seed(0)
    x, y = numbers()
    found = said(batches(with_column(x, 5*y[:, 0] + 2), y), loss=F.mse_loss, n_out=1)
    assert "another unit" in found["target among the inputs"][1]
    found = said(batches(x, y), (numbers(200)[0], 100*numbers(200)[1]), F.mse_loss, 1)
    assert "the target has a mean" in found["validation differs from training"][1]


def answers(out, y): return F.binary_cross_entropy_with_logits(out, y)


def test_targets_of_the_whole_set_are_in_the_range_of_the_loss():
    torch.manual_seed(0)
    x = torch.randn(400, 6)
    y = (x[:, :4] > 0).float()
    assert not said(batches(x, y), loss=answers)
    y[300] = 2
    assert "expects targets from 0 to 1" in said(batches(x, y), loss=answers)["loss does not fit the targets"][1]


RIGHT = {
    "a table": lambda: (batches(*table()), table(200)),
    "pictures": lambda: (batches(*pictures()), pictures()),
    "tokens": lambda: (batches(*tokens()), tokens(200)),
    "validation in order": lambda: (batches(*table()), in_order(*table(200))),
    "several samples of each of a few classes in a batch": lambda: ([(x[i], y[i]) for x, y in [table(400, 20)]
        for i in ((torch.randperm(20)[:5, None] + 20*torch.arange(4)).flatten() for _ in range(16))],),
    "random changes of training": lambda: (batches(*(lambda x, y: (x*(.8 + .4*torch.rand(200, 1, 1, 1))
        + .1*torch.randn_like(x), y))(*pictures())), pictures()),
    "long tails": lambda: (batches(*(lambda x, y: ((2*x).sinh(), y))(*table(800))),
        (lambda x, y: ((2*x).sinh(), y))(*table(400))),
    "seldom more than zero": lambda: (batches(*(lambda x, y: (with_column(x, torch.rand(400) < .01), y))(*table())),
        (lambda x, y: (with_column(x, torch.rand(200) < .05), y))(*table(200))),
    "a rare class that a small validation lacks": lambda: (batches(*(lambda x, y: (x, torch.where(
        torch.arange(400) % 50 == 7, 3, y % 3)))(*table())), (lambda x, y: (x, y % 3))(*table(100))),
}


@pytest.mark.parametrize("name", RIGHT)
def test_data_that_is_right_is_left_alone(name):
    torch.manual_seed(0)
    found = {what: one for what, one in said(*RIGHT[name](), n_out=20).items()
             if one[0] != "note" or what in ("labels look random", "one class is most of the data")}
    if name == "tokens": found.pop("labels look random", None)
    assert not found, found


class Drawn(Dataset):
    "Draws from all generators, as augmentations do."
    def __len__(self): return 120
    def __getitem__(self, i): return torch.randn(6) + random.random(), i % 4


class Stream(IterableDataset):
    def __iter__(self):
        for i in torch.randperm(120).tolist(): yield torch.full((6,), i/30), i % 4


@pytest.mark.parametrize("loader", [
    lambda: DataLoader(Drawn(), 20, shuffle=True), lambda: DataLoader(Stream(), 20),
    lambda: DataLoader(Drawn(), 20, sampler=RandomSampler(Drawn(), generator=torch.Generator().manual_seed(4)))])
def test_reading_leaves_order_and_random_numbers_as_they_were(loader):
    torch.manual_seed(0)
    random.seed(0)
    one, model, = loader(), nn.Linear(6, 4)
    before = torch.get_rng_state(), random.getstate()
    found = hl.preflight(model, F.cross_entropy, one, train=one, valid=one, overfit=False)
    assert torch.equal(before[0], torch.get_rng_state()) and random.getstate() == before[1]
    assert any("all 120 samples of train" in c.said for c in found.checks), found.checks
    first = [y.tolist() for _, y in one]
    torch.set_rng_state(before[0])
    random.setstate(before[1])
    if "sampler" not in repr(loader): assert len(first) == 6


def test_a_loader_gives_the_same_batches_as_without_preflight():
    def epoch(looks):
        torch.manual_seed(0)
        model, one = nn.Linear(6, 4), DataLoader(TensorDataset(*table()), 50, shuffle=True)
        if looks: hl.preflight(model, F.cross_entropy, one, train=one, overfit=False)
        return torch.cat([x for x, _ in one])
    assert torch.equal(epoch(False), epoch(True))


@pytest.mark.parametrize("given", [
    lambda x, y: batches(x, y), lambda x, y: (x, y), lambda x, y: tuple(batches(x, y)),
    lambda x, y: DataLoader(TensorDataset(x, y), 32), lambda x, y: hl.DataLoaders(batches(x, y), batches(x, y)),
    lambda x, y: [{"input": a, "labels": b} for a, b in batches(x, y)]])
def test_data_comes_in_many_forms(given):
    torch.manual_seed(0)
    data = given(*table())
    found = hl.preflight(nn.Linear(6, 4), F.cross_entropy, batches(*table())[:2], train=data, overfit=False)
    assert any("all 400 samples of train" in c.said for c in found.checks)
    assert not found, f"{found!r}"


def test_without_data_nothing_is_said_of_it():
    found = hl.preflight(nn.Linear(6, 4), F.cross_entropy, batches(*table())[:2], overfit=False)
    assert not any("shuffled" in c.claim for c in found.checks)


def test_no_more_is_read_than_time_allows(monkeypatch):
    class Slow(Dataset):
        def __len__(self): return 10_000
        def __getitem__(self, i):
            clock[0] += 1
            return torch.zeros(6), 0

    clock = [0]
    monkeypatch.setattr(time_limit, "now", lambda: clock[0])

    def ten(): return [(torch.randn(10, 6), torch.arange(10) % 4) for _ in range(300)]
    found = hl.preflight(nn.Linear(6, 4), F.cross_entropy, ten()[:2], train=ten(), overfit=False)
    assert any("the first 2,000 samples of train" in c.said for c in found.checks)
    found = hl.preflight(nn.Linear(6, 4), F.cross_entropy, ten()[:2], train=DataLoader(Slow(), 60), overfit=False,
                         seconds=100.)
    said = [c.said for c in found.checks]
    assert any("the first 60 samples of train, which took 60.0 s" in text for text in said), said


@pytest.mark.parametrize("given, error, words", [
    (lambda: iter(batches(*table())), TypeError, "train can be looped over only once"),
    (lambda: 3, TypeError, "train must be a loader or a list of batches, not a int"), (list, ValueError, "no batch"),
    (lambda: ["a", "b"], TypeError, "train returns str, which isn't a batch")])
def test_what_is_no_data_is_explained(given, error, words):
    with pytest.raises(error, match=words):
        hl.preflight(nn.Linear(6, 4), F.cross_entropy, batches(*table())[:2], train=given(), overfit=False)


# ---- Without classes, a loader that reads in order

def groups(n=400, each=50):
    "Numbers of eight groups, one after the other, as of tasks, days or persons."
    x = .2*torch.randn(n, 6) + torch.randn(n//each, 6).repeat_interleave(each, 0)
    return x, x[:, :1] + .1*torch.randn(n, 1)


def rising(n=400):
    x = torch.linspace(0, 1, n)[:, None] + .1*torch.randn(n, 6)
    return x, x[:, :1]


def sorted_by_target(n=400):
    x = torch.randn(n, 6)
    order = x[:, 0].argsort()
    return x + 2*torch.randn(n, 6), x[order, :1]


def of_dicts(x, y): return [{"x": a, "labels": b} for a, b in zip(x, y)]


@pytest.mark.parametrize("data", [groups, rising, sorted_by_target])
@pytest.mark.parametrize("shuffled", [False, True])
def test_numbers_in_order(data, shuffled):
    loader = DataLoader(TensorDataset(*data()), batch_size=25, shuffle=shuffled)
    found = said(loader, loss=F.mse_loss, n_out=1)
    assert ("data not shuffled" in found) != shuffled
    if not shuffled:
        sure, evidence = found["data not shuffled"]
        assert sure == "possible" and "reads train in order" in evidence


def test_numbers_in_order_of_a_loader_of_dicts():
    loader = DataLoader(of_dicts(*groups()), batch_size=16)
    assert "data not shuffled" in said(loader, loss=F.mse_loss, n_out=1)


@pytest.mark.parametrize("loader", [
    lambda: DataLoader(TensorDataset(*numbers()), batch_size=25),  # in order, and nothing follows from it
    lambda: batches(*groups(), n=50),  # a list: each batch may be a task of its own
    lambda: DataLoader(TensorDataset(*groups()), batch_size=25, sampler=RandomSampler(range(400))),
    lambda: DataLoader(TensorDataset(*groups()), batch_size=200),  # two batches
])
def test_numbers_in_no_order(loader):
    assert "data not shuffled" not in said(loader(), loss=F.mse_loss, n_out=1)
