"A part of the bench of `compare_losses`: trainings with a planted fault, and healthy ones."
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from support.portions import sample, sweep
from tests.bench.loss_cases import CASES, DEAD, FIGHT, OUTWEIGHS, Own, untrue

NAMES = [f"{case.kind} {case.family}: {case.name}" for case in CASES]
PART = sample(12, CASES, name=lambda case: f"{case.family}: {case.name}", kind=lambda case: case.kind)


def finding(what, losses, layers=(), sure="likely"):
    return SimpleNamespace(what=what, losses=losses, layers=layers, sure=sure)


def test_cases_have_the_numbers_that_were_fixed_and_names_of_their_own():
    assert [sum(case.kind == kind for case in CASES) for kind in (FIGHT, OUTWEIGHS, DEAD, "")] == [14, 13, 13, 20]
    assert len(set(NAMES)) == len(CASES)


def test_own_gradients_are_those_by_hand():
    model = nn.ModuleDict({"a": nn.Linear(2, 1, bias=False), "b": nn.Linear(1, 1, bias=False)})
    model["b"].weight.data.fill_(2.)
    h = model["a"](torch.tensor([[3., 4.]]))
    own = Own()
    own(model, 0, {"up": -h.sum(), "down": model["b"](h).sum(), "none": h.detach().sum()})
    assert own.norms[0, "a", "up"] == 5 and own.norms[0, "a", "down"] == 10 and own.norms[0, "b", "up"] == 0
    assert own.cosines_of("a", ("down", "up")) == [pytest.approx(-1)] and own.cosines_of("b", ("up", "down")) == []
    assert own.balance("a", ("up", "down")) == .5 and own.reaches("up") and not own.reaches("none")
    assert own.outweighs("up") == pytest.approx(5/(100 + h.item()**2)**.5)


@sweep
@pytest.mark.parametrize("case", PART, ids=lambda case: case.name)
def test_a_plant_is_what_it_claims_and_a_healthy_training_learns(case):
    own = Own()
    case.train(see=own)
    assert untrue(case, own) == []


def test_what_is_said_of_a_plant_is_judged():
    from tests.bench.bench_losses import Judged, wrong_layers
    case = next(case for case in CASES if case.kind == FIGHT)
    own = Own()
    own.cosines = {(0, case.layer, *case.losses): -.9, (0, "fc4", *case.losses): .1}

    def judged(*findings): return Judged(case, own, list(findings))
    a, b = case.losses
    right = judged(finding(FIGHT, (b, a), (case.layer,)))
    assert right.is_right and not right.others and wrong_layers(right) == []
    more = judged(finding(FIGHT, (a, b), (case.layer, "fc4", "elsewhere")), finding(OUTWEIGHS, (a,)))
    assert more.is_right and len(more.others) == 1 and len(wrong_layers(more)) == 2
    for wrong in (finding(FIGHT, (a, b), ("fc4",)), finding(FIGHT, (a, "recon"), (case.layer,)), finding(DEAD, (a, b)),
                  finding(FIGHT, (a, b), (case.layer,), "note")): assert not judged(wrong).is_right


@sweep
@pytest.mark.parametrize("case", PART, ids=lambda case: case.name)
def test_what_is_planted_is_found_exactly_and_nothing_in_healthy_trainings(case):
    from tests.bench.bench_losses import judge
    found = judge(case)
    assert found.is_exact, found
    assert found.wrong == [], found
    assert found.is_right if case.kind else not found.beyond_notes, found
