"How the loss of a run is judged where several passes share a step."
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.diagnosis.evidence import Run
from hooklab.diagnosis.loss_curve import loss_course

pytestmark = pytest.mark.usefixtures("one_thread")
WIDTH = {"nll": 5, "squares": 3, "logits": 5, "yes or no": 1}


def loss_of(kind, output, target):
    if kind == "nll": return F.nll_loss(output.log_softmax(1), target.argmax(1))
    if kind == "logits": return F.cross_entropy(output, target.argmax(1))
    if kind == "squares": return F.mse_loss(output, target)
    return F.binary_cross_entropy_with_logits(output, (target[:, :1] > 0).float())


def told(how, losses, sizes):
    if how == "mean": return sum(losses)/len(losses)
    if how == "weighted": return sum(loss*n for loss, n in zip(losses, sizes))/sum(sizes)
    if how == "last": return losses[-1]
    return losses[-1]/len(losses) if how == "last part" else None


def record(kind, sizes, learns=False, how="mean", shares="equal", auto=False, steps=64, targets=lambda place, y: y):
    "A run whose steps have passes of these sizes; without `learns`, targets have nothing to do with inputs."
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(12, 48), nn.Tanh(), nn.Linear(48, WIDTH[kind]))
    truth = torch.randn(12, WIDTH[kind])
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    given = {"auto": True} if auto else {}
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer, **given) as stats:
        for step in range(steps):
            few = sizes[:1 + (step + 1) % len(sizes)] if shares == "cut short" else sizes
            losses = []
            for place, n in enumerate(few):
                x = torch.randn(n, 12)
                y = x@truth if learns else torch.randn(n, WIDTH[kind])
                loss = loss_of(kind, model(x), targets(place, y))
                (loss*n/sum(few) if shares == "weighted" else loss/len(few)).backward()
                losses.append(loss.item())
            optimizer.step()
            optimizer.zero_grad()
            if not auto: stats.step(told(how, losses, few))
    return stats


def found(stats): return [f.what for f in hl.diagnose(stats) if f.sure != "note"]
def not_judged(stats): return [text for text in hl.diagnose(stats).unknown if text.startswith("whether the loss falls")]


@pytest.mark.parametrize("kind, sizes, options", [
    ("logits", (40,), {}), ("logits", (24, 24), {}), ("nll", (12, 12, 12), {"how": "last"}),
    ("logits", (8,)*7, {}), ("nll", (14, 14, 9), {"how": None}), ("logits", (10,)*4, {"auto": True}),
    ("logits", (16, 16), {"shares": "cut short"}), ("yes or no", (24, 24), {"how": "last part"}),
    ("squares", (20, 20), {}), ("squares", (20, 20, 20), {"how": "last"}), ("squares", (12,)*4, {"how": "last part"}),
    ("squares", (20, 9), {}), ("squares", (20, 9), {"how": "weighted", "shares": "weighted"})])
def test_what_learns_nothing_is_found_and_what_learns_is_left_alone(kind, sizes, options):
    stats = record(kind, sizes, **options)
    assert found(stats) == ["loss does not fall"] and not not_judged(stats)
    learned = record(kind, sizes, learns=True, **options)
    course = loss_course(Run(learned))
    assert not found(learned) and not not_judged(learned) and course.late < .8*course.guess


def test_the_loss_of_a_step_is_the_mean_of_its_passes():
    once, four = (loss_course(Run(record("squares", sizes))) for sizes in ((48,), (12,)*4))
    assert once.guess == pytest.approx(four.guess, rel=.2) and once.late == pytest.approx(four.late, rel=.1)
    assert len(once.losses) == len(four.losses) and four.kind == "squared error"


def judges(place, y):
    "Real and made samples: all of the one pass are of one class, and all of the other of another."
    return F.one_hot(torch.full((len(y),), place), y.shape[1]).double()


@pytest.mark.parametrize("kind, sizes, options, why", [
    ("logits", (16, 16), {"targets": judges}, "its passes have different losses"),
    ("squares", (8,)*6, {}, "matches no known kind"),  # not all of its passes are looked at
    ("squares", (24,), {"auto": True}, "step(loss) also gets"),
    ("squares", (12, 12), {"how": None}, "step(loss) also gets")])
def test_what_cannot_be_judged_is_told(kind, sizes, options, why):
    stats = record(kind, sizes, **options)
    text, = not_judged(stats)
    assert why in text and loss_course(Run(stats)) is None and "loss does not fall" not in found(stats)
    assert not not_judged(record(kind, sizes, steps=30, **options))  # that the run is short is told instead


def test_passes_whose_losses_differ_are_not_taken_for_parts_of_a_batch():
    "A second pass on inputs that are turned against the model has another loss, as in adversarial training."
    torch.manual_seed(0)
    model, truth = nn.Linear(12, 5), torch.randn(12, 5)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for _ in range(90):
            x = torch.randn(32, 12)
            y = (x@truth).argmax(1)
            loss = F.cross_entropy(model(x), y) + F.cross_entropy(model(x - 3*truth.T[y].sign()), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            stats.step(loss)
    assert loss_course(Run(stats)) is None and not_judged(stats)
