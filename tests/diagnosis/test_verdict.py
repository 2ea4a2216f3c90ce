"""What preflight, find_nan and a record say of one run is one list: the same once, causes first, and what to do."""
import copy
import gc
import json
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.diagnosis.sarif import as_rows, diagnosis_of, sarif
from hooklab.diagnosis.verdict import verdict
from hooklab.findings.found import Finding
from hooklab.stats.records.other_tools import MEMORIES, remembered_findings

pytestmark = pytest.mark.usefixtures("one_thread")


def net(*end, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3), *end)


def batch(n=32):
    x = torch.randn(n, 4)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def checked(model, optimizer=None, loss=F.cross_entropy, **options):
    return hl.preflight(model, loss, [batch(), batch()], optimizer, **{"overfit": False} | options)


def trained(model, optimizer, loss=F.cross_entropy, steps=12, hunt=False, labels=lambda y: y):
    stats = hl.ActivationStats.for_diagnosis()
    def loop():
        for _ in range(steps):
            x, y = batch()
            optimizer.zero_grad()
            found = loss(model(x), labels(y))
            found.backward()
            optimizer.step()
            stats.step(found)
    try:
        with stats.on(model, optimizer=optimizer):
            if hunt:
                with hl.find_nan(model): loop()
            else: loop()
    except hl.NonFiniteError: pass
    return stats


def adam(model, lr=3e-3): return torch.optim.Adam(model.parameters(), lr)
def whats(found): return [f.what for f in found if f.sure != "note"]


# Which preflight

def test_a_record_takes_over_the_last_preflight_of_its_model():
    model = net(nn.Softmax(1))
    optimizer = adam(model)
    checked(model, optimizer)
    checked(net(seed=1), None)
    found = hl.diagnose(trained(model, optimizer))
    assert found.first.what == "activation before the loss" and "preflight" in found.first.seen_by
    assert "seen by preflight" in str(found) and "seen by preflight" in found._repr_html_()


def test_another_model_is_none_of_it():
    "A copy, and one that calls itself equal."
    class Equal(nn.Sequential):
        def __eq__(self, other): return True
        def __hash__(self): return 1
    model = Equal(*net(nn.Softmax(1)))
    checked(model)
    others = copy.deepcopy(model), Equal(*net())
    assert remembered_findings(model, []) and not any(remembered_findings(other, []) for other in others)


def test_a_model_is_not_kept_alive():
    model = net(nn.Softmax(1))
    checked(model, adam(model))
    seen, key = weakref.ref(model), id(model)
    assert key in MEMORIES
    del model
    gc.collect()
    assert seen() is None and key not in MEMORIES


def test_what_was_said_of_other_parameters_or_another_optimizer_is_not_taken_over():
    model = net(nn.Softmax(1))
    forgets = torch.optim.SGD(model[2].parameters(), .1)
    assert "not in the optimizer" in checked(model, forgets)
    assert [row["what"] for row in remembered_findings(model, [forgets])][:1] == ["not in the optimizer"]
    assert [row["what"] for row in remembered_findings(model, [adam(model)])] == ["activation before the loss"]
    model[2] = nn.Linear(16, 3)
    assert not remembered_findings(model, [forgets])


def test_a_preflight_that_fails_leaves_nothing_of_the_one_before():
    model = net(nn.Softmax(1))
    checked(model)
    with pytest.raises(RuntimeError): hl.preflight(model, F.cross_entropy, (torch.randn(8, 5), torch.zeros(8).long()))
    assert not remembered_findings(model, [])


def test_a_preflight_can_be_given():
    model, other = net(), net(nn.Softmax(1))
    optimizer = adam(model)
    stats = trained(model, optimizer)
    assert "activation before the loss" in hl.diagnose(stats, preflight=checked(other))
    assert "activation before the loss" not in hl.diagnose(stats)
    with pytest.raises(TypeError, match="not a Diagnosis"): hl.diagnose(stats, preflight=hl.diagnose(stats))


# Once, and in order

def finding(what, sure="likely", layers=(), steps=(0, 9), **more):
    return Finding(what, sure, f"{what} is so.", list(layers), steps, advice=f"Look at {what}.", **more)


def rows(*findings): return [f.row for f in findings]


@pytest.mark.parametrize("own, other, sure, layers", [
    ("certain", "likely", "certain", ["2.weight"]), ("likely", "certain", "certain", ["2"]),
    ("likely", "likely", "likely", ["2.weight"])])
def test_the_same_is_said_once_by_the_surer_tool(own, other, sure, layers):
    before = rows(finding("not trained", other, ["2"]))
    found = verdict([finding("not trained", own, ["2.weight"])], {"preflight": before})
    assert [(f.sure, f.layers, f.seen_by) for f in found] == [(sure, layers, ("preflight", "diagnose"))]


def test_the_same_of_other_layers_is_said_of_both():
    found = verdict([finding("not trained", layers=["2"])], {"preflight": rows(finding("not trained", layers=["20"]))})
    assert [f.layers for f in found] == [["2"], ["20"]]


def test_causes_come_first_across_tools():
    found = verdict([finding("loss does not fall", only_that=True), finding("samples alike", "certain")],
                    {"preflight": rows(finding("cannot learn by heart"), finding("labels broadcast", steps=(0, 0)))})
    assert whats(found)[:2] == ["labels broadcast", "samples alike"]
    assert {f.what: f.follows for f in found} == {
        "labels broadcast": "", "samples alike": "labels broadcast", "loss does not fall": "labels broadcast",
        "cannot learn by heart": "labels broadcast"}


def test_what_names_no_cause_is_last_and_says_what_to_look_at():
    lone, = verdict([finding("loss does not fall", "certain", only_that=True)], {})
    assert "hl.preflight(" in lone.advice and "Look next: Call `hl.preflight(" in str(lone)
    after, = verdict([finding("loss does not fall", only_that=True)], {"preflight": []})
    assert "print ten inputs with their labels" in after.advice and "hl.preflight(" not in after.advice
    found = verdict([finding("loss does not fall", "certain", only_that=True)],
                    {"preflight": rows(finding("mask ignored", "possible"))})
    assert whats(found) == ["mask ignored", "loss does not fall"] and "(mask ignored)" in found[1].advice


def test_a_run_that_learns_refutes_what_16_samples_showed():
    model = net()
    stats = trained(model, adam(model, .03), steps=80)
    others = {"preflight": rows(finding("cannot learn by heart"), finding("samples leak"))}
    stats.others = others
    assert whats(hl.diagnose(stats)) == ["samples leak"]


def test_the_layer_with_the_first_large_numbers_is_named():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
    with torch.no_grad(): model[2].weight *= 300
    found = checked(model)
    one, = (f for f in found if f.what == "first loss too high")
    assert one.layers == ["2"] and "2 gets values of about 0.52 and returns values of about 78." in one.evidence


# NaN

class Root(nn.Module):
    "A root whose input is zero from the fourth call on."
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x + (x - x.detach()).square().sum().sqrt() if self.calls > 3 else x


def test_the_layer_of_find_nan_wins():
    model = net()
    model.insert(1, Root())
    found = hl.diagnose(trained(model, adam(model), hunt=True))
    (one,) = (f for f in found if f.what == "NaN or Inf")
    assert one.layers == ["1"] and one.seen_by[0] == "find_nan" and one.steps == (3, 3) and found.first is one
    assert one.evidence.startswith("NaN made by 1 (Root) in the backward pass")


def test_a_nan_of_the_loss_is_of_no_layer():
    model, calls = net(), iter(range(100))
    def loss(o, y): return F.cross_entropy(o, y) + ((o - o.detach()).square().sum().sqrt() if next(calls) == 2 else 0)
    found = hl.diagnose(trained(model, adam(model), loss, hunt=True))
    assert found.first.layers == [] and "no layer made it" in found.first.evidence and "root of 0" in found.first.advice


def test_a_nan_in_the_first_step_is_told_though_nothing_was_recorded():
    model = net(Root())
    model[3].calls = 9
    found = hl.diagnose(trained(model, adam(model), hunt=True))
    assert whats(found) == ["NaN or Inf"] and found.first.layers == ["3"]


# Files

def test_a_file_says_the_same(tmp_path):
    model = net(nn.Softmax(1))
    optimizer = adam(model)
    checked(model, optimizer)
    stats = trained(model, optimizer)
    stats.others |= {"preflight": stats.others["preflight"] + rows(finding("samples leak", layers=["0"], steps=(0, 0)))}
    stats.save(tmp_path/"run.safetensors")
    for found in diagnosis_of(tmp_path/"run.safetensors"), hl.diagnose(copy.deepcopy(stats)):
        assert as_rows(found) == as_rows(hl.diagnose(stats)) and "samples leak" in found
    plain = json.loads(json.dumps(as_rows(found)))["findings"]
    assert ["preflight", "diagnose"] in [row["seen_by"] for row in plain]
    log = sarif(found)["runs"][0]
    leak, = (r for r in log["results"] if r["ruleId"] == "samples leak")
    assert leak["properties"]["seen by"] == ["preflight"]
    assert log["tool"]["driver"]["rules"][leak["ruleIndex"]]["id"] == "samples leak"


@pytest.mark.parametrize(("cause", "effect"), [
    ("wrong axis", "samples leak"), ("wrong axis", "softmax over samples"), ("softmax over samples", "samples leak"),
    ("gradient is cut", "not trained"), ("stuck at zero", "not trained"), ("state is lost", "not trained")])
def test_a_consequence_comes_behind_its_cause(cause, effect):
    "Also where the consequence is as sure, or surer."
    found = verdict([], {"preflight": rows(finding(effect, sure="certain"), finding(cause, sure="likely"))})
    assert [(f.what, f.follows) for f in found] == [(cause, ""), (effect, cause)]
