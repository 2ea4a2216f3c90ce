"One cause, one answer: what is printed of a dead run, of a healthy one, and of all that is found."
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.checking.result import Checked, Preflight
from hooklab.diagnosis.result import Diagnosis
from hooklab.findings.found import Finding
from hooklab.findings.rules import rules_that_need

pytestmark = pytest.mark.usefixtures("one_thread")


def trained(model, lr=.1, steps=30):
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr)
    x, y = hl.digits().train.dataset.tensors
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as stats:
        for some in torch.randperm(len(x))[:steps*32].split(32):
            loss = F.cross_entropy(model(x[some]), y[some])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            stats.step(loss)
    return hl.diagnose(stats)


def deep(n=8):
    torch.manual_seed(0)
    hidden = [layer for _ in range(n) for layer in (nn.Linear(64, 64), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(64, 10))


def closed(model):
    "Each ReLU from the third on returns zeros only."
    for layer in [*model][5:]:
        if isinstance(layer, nn.Linear): nn.init.constant_(layer.bias, -30)
    return model


def test_a_dead_run_is_twelve_lines_at_most():
    found = trained(closed(deep()))
    assert found and len(found) > 1 and len(repr(found).splitlines()) <= 12
    assert all(f.evidence in repr(found.all) for f in found) and found.first.evidence in repr(found)
    assert [row["what"] for row in found.rows] == [f.what for f in found]


def test_a_healthy_program_is_one_line():
    model = deep(2)
    before = hl.preflight(model, F.cross_entropy, hl.digits().train, torch.optim.SGD(model.parameters(), .1))
    after = trained(model)
    for found in before, after:
        assert not found and len(repr(found).splitlines()) == 1 and found.first is None
    assert "Not looked at" in repr(before) and all(claim in repr(before.all) for claim in before.not_looked_at)


CAUSE = Finding("no zero_grad", "likely", "They add up.", steps=(0, 9), advice="Clear them.")
FOLLOWS = Finding("outputs blow up", "likely", "They grow.", ["out"], (3, 9), follows="no zero_grad")
OTHER = Finding("eval mode", "certain", "It was so.", steps=(0, 9), advice="Call train().")
POSSIBLE = Finding("dead units", "possible", "Zeros.", ["act"], (0, 9), advice="Look.")
NOTE = Finding("frozen part", "note", "Frozen.", ["emb"], (0, 9))
CHECKS = [Checked("Inputs are used.", "fine"), Checked("A mask is obeyed.", "not looked at", "there is none")]


@pytest.mark.parametrize("make", [lambda found: Diagnosis(found, 10, 3, ["gradients; record them"]),
                                  lambda found: Preflight(found, CHECKS, .5)])
def test_what_is_shown(make):
    found = make([OTHER, CAUSE, POSSIBLE, FOLLOWS, NOTE])
    text, page = repr(found), found._repr_html_()
    for finding in OTHER, CAUSE: assert finding.evidence in text and finding.evidence in page
    for finding in POSSIBLE, FOLLOWS, NOTE: assert finding.evidence not in text and finding.evidence in repr(found.all)
    lines = text.splitlines()
    assert "Follows from no zero_grad: outputs blow up in out (steps 3 to 9)" in lines
    assert lines[-1].startswith("Possible: dead units in act. Notes: frozen part in emb. Not ")
    assert "dead units in act" in page and "gradients" in repr(found.all) or "A mask is obeyed." in repr(found.all)


def test_what_is_only_possible_is_shown_if_it_is_the_first():
    found = Diagnosis([POSSIBLE, NOTE], 10, 3, [])
    assert POSSIBLE.evidence in repr(found) and found and "Possible:" not in repr(found)
    assert not Diagnosis([NOTE], 10, 3, []) and "frozen part in emb" in repr(Diagnosis([NOTE], 10, 3, []))


def test_each_rule_has_a_kind_or_more_and_one_of_diagnose_has_one():
    for rule in rules_that_need("loop", "layers"): assert len(rule.kinds) == 1
    for rule in rules_that_need("batch", "sets", "passes", "steps"): assert rule.claim.endswith(".")
