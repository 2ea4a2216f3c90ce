"Cases: looks cost, a name needs a claim, one treatment is not enough, and a doctor by rote solves them."
import copy
import math
import os
import re
from functools import partial
from random import Random

import pytest
import torch

import hooklab as hl
from hooklab.exercises import reports, ward
from hooklab.exercises.checking import NotYet, own_settings
from hooklab.exercises.diseases import DISEASES, judge_name
from hooklab.exercises.looks import LOOKS, CaseLook, Probe, look_at
from hooklab.exercises.patterns import patterns
from hooklab.exercises.progress import FILE, begin, how_far, read_tries
from hooklab.exercises.reports import SIGNS, Claim
from hooklab.exercises.treatment import CURED, outcome_of
from hooklab.exercises.twins import Training
from hooklab.exercises.ward import healthy_tables
from support.clinic_cures import CURES, nothing
from support.clinic_doctor import SHOWS, claims_of, examine
from support.portions import SWEEP, sample, sweep

PLANS = {seed: ward.plan_of_case(seed) for seed in range(60)}
HEALTHY = next(seed for seed, plan in PLANS.items() if not plan.faults and plan.kind == "tanh")
SICK = next(seed for seed, plan in PLANS.items() if plan.faults and plan.kind == "tanh")


def not_yet(told): return pytest.raises(NotYet, match=told)


def both(plan):
    def f(p):
        for fault in plan.faults: CURES[fault.what](p)
    return f


@pytest.fixture
def unseen(monkeypatch):
    "Looks that see nothing, and take no time: what they cost is the same."
    monkeypatch.setattr(ward, "look_at", lambda p, what: CaseLook(what, text="nothing to see"))


def right_claims(case):
    "For each fault: a look, a claim and a layer that the doctor has for it."
    layers = [*case.look("outputs").table]
    for fault, where in zip(case._plan.faults, case._layers):
        for look, claim, layer in claims_of(fault.what, layers):
            if layer is not None and layer not in where: continue
            seen = Claim(*claim)
            if seen.holds(case.look(look).table):
                yield look, claim, fault, layer
                break


# ---- what is planted

def test_pairs_are_sorted_and_of_two_kinds():
    assert [*ward.PAIRS] == sorted(ward.PAIRS)
    for (kind, layer), runs in ward.PAIRS.items():
        each = runs.split(", ")
        assert each == sorted({*each}) and {layer, *each} <= {*DISEASES}
        for what in (layer, *each):
            assert kind in DISEASES[what].kinds and DISEASES[what].losses == 1
            assert DISEASES[what].plant.__module__.endswith("layer_diseases" if what == layer else "run_diseases")
    assert sum(len(runs.split(", ")) for runs in ward.PAIRS.values()) >= 60


def test_one_in_six_is_healthy_and_no_pair_comes_twice():
    sick = [(plan.kind, *(fault.what for fault in plan.faults)) for plan in PLANS.values() if plan.faults]
    assert len(sick) == 50 == len({*sick}) and {kind for kind, *_ in sick} >= {"relu", "tanh", "cnn"}
    for start in range(0, 60, 6): assert sum(not PLANS[seed].faults for seed in range(start, start + 6)) == 1
    assert len({seed % 6 for seed, plan in PLANS.items() if not plan.faults}) > 2, "a place that one cannot guess"


def test_a_case_is_the_same_each_time_and_says_nothing():
    state = torch.get_rng_state()
    a, b = (hl.patient(SICK, faults=2) for _ in range(2))
    assert repr(a) == repr(b) and repr(a.look("modes")) == repr(b.look("modes"))
    assert torch.equal(state, torch.get_rng_state())
    for fault in a._plan.faults:
        assert not any(name in repr(a).lower() for name in (fault.what, *fault.aliases))
    public = {name for name in dir(a) if not name.startswith("_")}
    assert public == {"answer", "claim", "complaint", "look", "name", "points", "report", "seed", "treat"}
    healthy = hl.patient(HEALTHY, faults=2)
    assert repr(healthy).splitlines()[3:] == repr(a).splitlines()[3:]


def test_neither_complaint_nor_network_is_evidence():
    for seed, plan in PLANS.items(): assert plan._replace(faults=()).complaint == plan.complaint == plan_complaint(seed)
    many = [ward.plan_of_case(seed) for seed in range(600)]
    for what in (*ward.COMPLAINTS, "relu", "tanh", "cnn"):
        healthy, sick = ([what in (plan.complaint, plan.kind) for plan in many if bool(plan.faults) == ill]
                         for ill in (False, True))
        assert abs(sum(healthy)/len(healthy) - sum(sick)/len(sick)) < .12, what


def plan_complaint(seed): return hl.patient(seed, faults=2).complaint


@pytest.mark.parametrize("seed", [HEALTHY, SICK])
def test_a_complaint_is_true(seed):
    "A network without a fault is not perfect either."
    p = PLANS[seed].admitted(seed)
    p.train()
    x, y = patterns(500, seed, draw=2)
    with torch.no_grad(): assert (p.model.eval()(p.prepare(x)).argmax(1) == y).float().mean() < .99


def test_neighbors_have_other_faults():
    for start in range(200):
        some = [ward.plan_of_case(seed).faults for seed in range(start, start + 20)]
        assert len({tuple(fault.what for fault in faults) for faults in some if faults}) >= 12


def test_parts_are_not_open():
    case = hl.patient(SICK, faults=2)
    for name in ("model", "train", "check", "batch"):
        with pytest.raises(AttributeError, match=f"no '{name}'.*look.*claim.*name.*treat"): getattr(case, name)
    assert not hasattr(case, "optimizer") and copy.deepcopy(case).seed == case.seed


# ---- looks

@pytest.mark.parametrize("kind", ["tanh", *[pytest.param(kind, marks=SWEEP) for kind in ("relu", "cnn", "rnn")]])
def test_a_measured_training_is_the_same(kind):
    a, b = Training(kind, 2), Training(kind, 2)
    probe = Probe(a)
    with probe.put_on(): a.train(25, after_step=probe.after_step)
    b.train(25)
    assert a.losses == b.losses and not hl.hooks_on(a.model) and probe.steps
    for p, q in zip(a.model.parameters(), b.model.parameters()): assert torch.equal(p, q)


@pytest.mark.parametrize("kind", ["tanh", pytest.param("cnn", marks=SWEEP)])
def test_each_column_is_explained_under_its_table(kind):
    for look, table in healthy_tables(kind, 3).items():
        assert {name for row in table.values() for name in row} == {*LOOKS[look].columns}, look
    look = look_at(Training(kind, 3), "modes")
    assert "\n\ntraining: 1 if the layer is in train mode" in repr(look) and look.explained.startswith("training: 1")
    assert {*LOOKS} - {look for look, side in LOOKS.items() if side.columns} == {"source", "diagnosis"}


def test_frozen_and_detached_layers_can_be_told_apart():
    seen = {}
    for what in ("frozen part", "not trained"):
        p = Training("relu", 3)
        DISEASES[what].plant(p, Random(0))
        look = look_at(p, "gradients")
        seen[what] = look.table["lin2"]
        assert "–: none" in repr(look) and math.isnan(seen[what]["parameters"])
        with not_yet("requires_grad=False.*no gradient reaches them"):
            judge_name(DISEASES[what], ["lin1"], 0, ({*("frozen part", "not trained")} - {what}).pop(), None)
    assert (seen["frozen part"]["requires_grad"], seen["not trained"]["requires_grad"]) == (0, 1)
    assert math.isnan(seen["frozen part"]["reached"]) and seen["not trained"]["reached"] == 0
    p = Training("relu", 3)
    torch.nn.init.constant_(p.model.lin3.bias, -1e3)
    dead = look_at(p, "gradients").table["lin2"]
    assert (dead["parameters"], dead["reached"], dead["output"]) == (0, 1, 0), "a gradient of 0 is one"


def test_source_is_in_whole_statements():
    p = Training("tanh", 3)
    DISEASES["wrong sign"].plant(p, type("First", (), {"random": lambda self: 0})())
    text = look_at(p, "source").text
    assert "patient.prepare = lambda inputs: (inputs - mean)/std\n" in text
    assert "patient.loss = lambda output, labels: -F.cross_entropy(output, labels)\n" in text
    p.batch = partial(p.batch)
    assert "functools.partial(<function usual_batch" in look_at(p, "source").text


@pytest.mark.parametrize(("kind", "seed"), [
    ("cnn", 0), *[pytest.param(kind, seed, marks=SWEEP) for kind in ("relu", "cnn") for seed in (1, 2)]])
def test_the_layer_that_a_diagnosis_says_is_right(kind, seed):
    p = Training(kind, seed)
    layers = DISEASES["NaN or Inf"].plant(p, Random(seed))
    assert re.search(r"NaN or Inf (?:in )?(\w+)", look_at(p, "diagnosis").text)[1] in layers


def test_looks_cost_once(unseen):
    case = hl.patient(SICK, faults=2)
    first = case.look("batch")
    assert case.points == 1 and case.look("batch") is first and case.points == 1
    assert case.look("source").what == "source" and case.points == 1 + LOOKS["source"].cost
    with not_yet("no look 'weights'. The looks are batch, outputs"): case.look("weights")
    assert case.look("batch", after=nothing) is not first and case.points == 5
    case.look("batch", after=nothing)
    assert case.points == 5 and "batch after `nothing` (1 point)" in str(case.report())


def test_a_look_after_a_treatment_sees_what_it_changed():
    case = hl.patient(SICK, faults=2)
    def wrong_labels(p): p.batch = lambda p, i: (p.prepare(p.x[p.rows[i]]), p.y[p.rows[i]]*0)
    assert case.look("batch", after=wrong_labels).table["labels"]["classes"] == 1
    with not_yet("You haven't looked at 'classes' of 'labels'"): case.claim("labels", "classes", "<", 2)
    case.claim("labels", "classes", "<", 2, after=wrong_labels)


def test_a_treatment_that_stops_is_told():
    case = hl.patient(SICK, faults=2)
    with not_yet("AttributeError"): case.look("batch", after=lambda p: p.nowhere)
    with not_yet("After this treatment, the training stops"):
        case.look("batch", after=lambda p: setattr(p, "loss", lambda output, labels: output.nothing()))
    assert case.points == 0


def test_no_number_is_in_two_looks():
    "A claim names a row and a number, and not the look."
    for kind in ("tanh", "cnn"):
        places = [(row, what) for table in healthy_tables(kind, 3).values() for row in table for what in table[row]]
        assert len(places) == len({*places}) > 50


# ---- claims and names

def test_claims_that_show_nothing():
    case = hl.patient(HEALTHY, faults=2)
    with not_yet("Look first"): case.claim("inputs", "std", ">", 1)
    std = case.look("batch").table["inputs"]["std"]
    with pytest.raises(TypeError, match="A claim has a row, .*a sign, and a number"): case.claim("inputs", "std")
    for odd, told in [
            (("inputs", "std", "==", 1), "compares with one of <, >"), (("inputs", "std", "<", "1"), "a number"),
            (("inputs", "none", "<", 1), "It has mean, std"), (("act9", "std", "<", 1), "rows are inputs"),
            (("loss", "last", ">", 1), "the complaint")]:
        with not_yet(told): case.claim(*odd)
    assert case.points == 1, "a slip of the pen costs nothing"
    with not_yet("That does not hold.*1 point, 2 so far"): case.claim("inputs", "std", "<", std - .5)
    with not_yet("it shows nothing"): case.claim("inputs", "std", ">", std - .5)
    with not_yet("it shows nothing"): case.claim("inputs", "std", ">=", std)  # the twin with its weights is equal
    assert case.points == 4


def test_a_name_needs_a_claim_and_a_wrong_sign_is_told(capsys):
    case = hl.patient(SICK, faults=2)
    first, second = right_claims(case)
    look, claim, fault, layer = first
    with not_yet("Each name needs a claim first"): case.name(fault.what, layer)
    turned = (*claim[:2], reports.OTHER_WAY[claim[2]], claim[3])
    with not_yet("That does not hold.*It is the other way around"): case.claim(*turned)
    case.claim(*claim)
    assert "in two healthy twins" in capsys.readouterr().out
    with not_yet("already shown that"): case.claim(*claim)
    before, wrong = case.points, next(what for what in DISEASES if what not in {f.what for f in case._plan.faults})
    with not_yet("A good doctor would have looked at.*what was odd earlier"): case.name(wrong, layer)
    with not_yet("No disease is named 'flu'"): case.name("flu")
    assert case.points == before + ward.WRONG_NAME
    case.name(fault.what, layer)
    with not_yet("already named that"): case.name(fault.what, layer)
    assert "One name is still missing" in capsys.readouterr().out
    with not_yet("Each name needs a claim first"): case.name(second[2].what, second[3])
    with not_yet("One name is still missing.*look again"): case.treat(nothing)
    with not_yet("named something that is wrong"): case.name("healthy")
    case.claim(*second[1])
    case.name(second[2].what, second[3])
    assert "still missing" not in capsys.readouterr().out
    with not_yet("already named both"): case.name(wrong, layer)


def test_something_is_wrong(unseen):
    case = hl.patient(SICK, faults=2)
    for what in ("batch", "loss", "modes"): case.look(what)
    with not_yet("Something is wrong with this patient. A good doctor would have looked at .*2 points, 5 so far"):
        case.name("healthy")


def test_nothing_is_wrong_after_looks_only(unseen, capsys, tmp_path, monkeypatch):
    begin(tmp_path)
    monkeypatch.chdir(tmp_path)
    case = hl.patient(HEALTHY, faults=2)
    with not_yet("first look at"): case.name("nothing is wrong")
    for what in ("batch", "loss", "outputs"): case.look(what)
    with not_yet("Each name needs a claim first"): case.name("dead units", "act1")
    with not_yet("Name what is wrong before you treat it"): case.treat(nothing)
    case.name("Nothing is wrong")
    assert "is that of a healthy run" in capsys.readouterr().out
    (row,) = read_tries(tmp_path/FILE)
    assert (row["what"], row["right"], row["points"]) == (f"case {HEALTHY}", True, 3)
    assert "Clinic: 1 case solved" in str(how_far())
    assert str(case.report()).startswith(f"# Case {HEALTHY}: solved, 3 points")


def test_a_low_loss_is_evidence_and_a_high_one_is_not(capsys):
    leak = next(seed for seed in range(100) for plan in [ward.plan_of_case(seed)]
                if [fault.what for fault in plan.faults] == ["units alike", "label in the input"])
    case = hl.patient(leak, faults=2)
    table = case.look("loss", after=CURES["units alike"]).table["loss"]
    with not_yet("A high loss is the complaint"): case.claim("loss", "new", ">", 1, after=CURES["units alike"])
    case.claim("loss", "last", "<", .1, after=CURES["units alike"])
    assert table["last"] < .1 and "ok: last of loss < 0.1" in capsys.readouterr().out


def test_a_name_for_a_healthy_network_is_wrong():
    "A claim can count if a treatment has done harm."
    case = hl.patient(HEALTHY, faults=2)
    def wrong_labels(p): p.batch = lambda p, i: (p.prepare(p.x[p.rows[i]]), p.y[p.rows[i]]*0)
    case.look("batch", after=wrong_labels)
    case.claim("labels", "classes", "<", 2, after=wrong_labels)
    with not_yet("It is not “labels shuffled”. Could a treatment have caused it.*2 points"):
        case.name("labels shuffled")


# ---- treatment

def test_a_treatment_of_one_fault_and_the_report(tmp_path, monkeypatch, capsys):
    begin(tmp_path)
    monkeypatch.chdir(tmp_path)
    case = hl.patient(SICK, faults=2)
    with not_yet("Each name needs a claim first"): case.name("dead units", "act1")
    with not_yet("does not hold"): case.claim("drop", "std", "<", -1) if case.look("outputs") else None
    for _, claim, fault, layer in right_claims(case):
        case.claim(*claim)
        case.name(fault.what, layer)
    one, other = case._plan.faults
    def half(p): CURES[one.what](p)
    with not_yet(f"One of the two is cured, “{one.what}”: .*“{other.what}” is left.*still holds"):
        case.treat(half)
    def whole(p): both(case._plan)(p)
    case.treat(whole)
    text = (tmp_path/f"case-{SICK}.md").read_text(encoding="utf-8")
    assert text == str(case.report()) and text.index("What was found") < text.index("Treatment") < text.index("`half`")
    for what in (one.what, other.what): assert re.search(rf"- \*\*{what}.*\*\*: .* in two healthy twins", text), what
    assert "def whole(p): both(case._plan)(p)" in text and " before, " in text and "doctor" not in text
    assert "Kept in" in capsys.readouterr().out
    with not_yet("closed: it is solved"): case.treat(whole)
    points = case.points
    case.look("diagnosis")
    assert case.points == points and str(case.report()) == text, "after the end, looks are free"


def test_a_model_is_not_replaced():
    with not_yet("A treatment may not replace the model. Change it in place"):
        hl.patient(SICK, faults=2).look("batch", after=lambda p: setattr(p, "model", None))


# ---- the report

def test_a_report_is_kept_in_a_learners_folder_only(unseen, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    case = hl.patient(HEALTHY, faults=2)
    for what in ("batch", "loss", "modes"): case.look(what)
    text = str(case.report())
    assert os.listdir() == [] and text.startswith(f"# Case {HEALTHY}: open, 3 points")
    assert "batch (1 point), loss (1 point)" in text
    begin(tmp_path)
    case.name("healthy")
    file = tmp_path/f"case-{HEALTHY}.md"
    assert capsys.readouterr().out.count(f"Kept in {file.name}") == 1, "without being asked"
    assert file.read_text(encoding="utf-8") == str(case.report()) and "- Nothing is wrong." in str(case.report())
    assert capsys.readouterr().out == ""
    again = hl.patient(HEALTHY, faults=2)
    again.look("batch")
    again.report()
    assert "is unchanged" in capsys.readouterr().out and "solved, 3 points" in file.read_text(encoding="utf-8")
    assert again.report()._repr_markdown_() == str(again.report())


def test_who_gives_up_has_not_solved_it(unseen, capsys, tmp_path, monkeypatch):
    begin(tmp_path)
    monkeypatch.chdir(tmp_path)
    for seed in (SICK, HEALTHY):
        case = hl.patient(seed, faults=2)
        case.answer()
        out = capsys.readouterr().out
        assert all(fault.what in out for fault in case._plan.faults)
        assert ("Nothing is wrong" in out) == (seed == HEALTHY)
        for what in ("batch", "loss", "modes"): case.look(what)
        with not_yet("This case is closed: it is given up. To start over"): case.name("nothing")
        with not_yet("closed"): case.treat(nothing)
        with not_yet("closed"): case.claim("inputs", "std", "<", 0)
        assert case.points == 0
        assert str(case.report()).startswith(f"# Case {seed}: given up") and read_tries(tmp_path/FILE) == []


# ---- the doctor

def test_the_doctor_knows_each_disease_of_a_case():
    assert {*SHOWS} == {what for what, d in DISEASES.items() if d.losses == 1 and not d.happened}
    for what in SHOWS:
        for look, claim, _ in claims_of(what, ["norm0", "lin1", "act1", "rnn", "drop", "head"]):
            assert look in LOOKS and claim[2] in SIGNS


@sweep
@pytest.mark.parametrize("seed", sample(5, range(20)))
@pytest.mark.filterwarnings("ignore:Detected call of")  # of a scheduler that was left behind
def test_a_doctor_by_rote_solves_twenty_cases(seed, capsys):
    case = hl.patient(seed, faults=2)
    plan = case._plan
    named = examine(case)
    assert {*named} <= {what for fault in plan.faults for what in (fault.what, *fault.also)}
    assert len(named) == len(plan.faults), (seed, named)
    for fault in plan.faults:
        with own_settings(): alone = outcome_of(plan.admitted(seed), CURES[fault.what])
        assert alone.ratio > CURED, (seed, fault.what)
    if plan.faults: case.treat(both(plan))
    assert re.match(r"# Case \d+: solved, \d+ points", str(case.report()))
    assert "with" in capsys.readouterr().out.splitlines()[-1]
