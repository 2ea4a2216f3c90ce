"""preflight looks at the targets of whole data sets: classes, weights, numbers that never change or look random."""
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl

pytestmark = pytest.mark.usefixtures("one_thread")


def made(n=960, classes=4):
    torch.manual_seed(0)
    y = torch.randint(classes, (n,))
    return F.one_hot(y, 8) + .5*torch.randn(n, 8), y


def found_in(what, x, y, n_out, loss_fn=F.cross_entropy):
    torch.manual_seed(0)
    model, batches = nn.Linear(8, n_out), list(zip(x.split(32), y.split(32)))
    found = hl.preflight(model, loss_fn, batches[:2], train=batches, overfit=False)
    return [(f.sure, f.evidence) for f in found if f.what == what]


FITS = "loss does not fit the targets"


@pytest.mark.parametrize(("begin", "lacks"), [(0, 4), (1, 0)])
def test_a_class_at_an_end_never_occurs(begin, lacks):
    x, y = made()
    (sure, said), = found_in(FITS, x, y + begin, 5)
    assert sure == "possible"
    assert f"of 960 labels in train, none is {lacks}: they go from {begin} to {begin + 3}" in said


def test_classes_that_are_rare_many_or_in_the_middle():
    x, y = made()
    assert not found_in(FITS, x, y, 4) and not found_in(FITS, x, y, 100)
    assert not found_in(FITS, x, torch.where(y == 2, 4, y), 5)
    assert not found_in(FITS, x, y*(torch.rand(960) < .02), 5)  # the others are rare too


def test_weights_of_frequent_classes():
    x, y = made()
    y = y*(torch.rand(960) < .4)
    shares = y.bincount()/960
    (sure, said), = found_in("loss takes another form", x, y, 4, nn.CrossEntropyLoss(shares/shares.mean()))
    assert sure == "possible" and said.startswith("The weights of cross_entropy are larger for frequent classes: ")
    assert not found_in("loss takes another form", x, y, 4, nn.CrossEntropyLoss(1/shares))
    assert not found_in("loss takes another form", x, y, 4, nn.CrossEntropyLoss(torch.ones(4)))


def answers(never):
    x, y = made(classes=6)
    several = (F.one_hot(y, 6) + F.one_hot(y.roll(1), 6)).clamp(max=1).float()
    several[:, never] = 0
    return x, several


def test_answers_that_are_never_yes():
    bce = F.binary_cross_entropy_with_logits
    (sure, said), = found_in("constant targets", *answers([4, 5]), 6, bce)
    assert sure == "note" and said.startswith("2 of 6 target values are the same in all 960 samples")
    assert not found_in("constant targets", *answers([]), 6, bce)
    x, rare = answers([4])
    rare[:, 3] *= torch.rand(960) < .02
    assert not found_in("constant targets", x, rare, 6, bce)  # the other may lack by chance


def test_numbers_that_never_change():
    x, _ = made()
    y = torch.stack([x[:, 0]*x[:, 1], x[:, 2].tanh(), torch.full((960,), 2.5)], 1)
    (sure, said), = found_in("constant targets", x, y, 3, F.mse_loss)
    assert sure == "possible" and said.startswith("1 of 3 target values are the same") and "always 2.5" in said


@pytest.mark.parametrize("size", [0, 1e-9])
def test_labels_that_are_nearly_equal_are_used(size):
    x, _ = made(32)
    y = torch.zeros(32, 1)
    y[1], y[2:] = size, torch.randn(30, 1)
    assert not found_in("labels not used", x, y, 1, F.mse_loss)


def test_numbers_that_do_not_belong_to_their_inputs():
    x, _ = made()
    y = torch.stack([x[:, 0]*x[:, 1], x[:, 2].tanh()], 1)
    assert not found_in("labels look random", x, y, 2, F.mse_loss)
    (sure, _), = found_in("labels look random", x, y[torch.randperm(960)], 2, F.mse_loss)
    assert sure == "note"


def test_a_blank_among_the_targets():
    def loss(blank, length=3):
        def computed(out, y):
            out = out.log_softmax(1)[:, None].expand(-1, 2, -1)
            return F.ctc_loss(out, y[:2, None].expand(2, 4) % 4 + 1 - blank, torch.full((2,), 32),
                              torch.full((2,), length), blank=blank - 1 if blank else 0)
        return computed
    x, y = made()
    def said(f): return [s for s in found_in(FITS, x, y.clamp(max=3), 6, f) if "blank" in s[1]]
    (sure, evidence), = said(loss(1))
    assert sure == "certain" and evidence.startswith("ctc_loss uses 0 as the blank label, but ")
    assert not said(loss(0))
