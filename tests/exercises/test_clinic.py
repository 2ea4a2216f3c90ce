"The clinic: each disease does harm, a treatment that fits cures it, and nothing else does."
import hashlib
import inspect
import math
import warnings
from functools import cache

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.diagnosis.diagnosing import FAULTS
from hooklab.exercises import patients, treatment, twins
from hooklab.exercises.checking import NotYet
from hooklab.exercises.diseases import DISEASES, LOST, NEW, NOT, id_of, look_in_words
from hooklab.exercises.progress import FILE, begin, how_far, read_tries
from support.checks import REPO
from support.clinic_cures import CURES, OTHER_CURES, fresh_weights, nothing, plus, unfreeze
from support.portions import sample, sweep

patients.patient(0)  # the diseases are entered
EACH = [(d.what, kind) for d in DISEASES.values() for kind in d.kinds]
QUICK = [("dead units", "relu"), ("no zero_grad", "tanh"), ("too few samples", "relu"), ("gradients explode", "rnn"),
         ("learning rate jumps", "relu")]
OWN_NAMES = {"labels shuffled", "too few samples", "label in the input", "train and validation differ",
             "learning rate jumps", "no activation", "samples not shuffled", "wrong plateau mode"}


def not_yet(told): return pytest.raises(NotYet, match=told)


# ---- patients of a disease and a kind of network

@cache
def one_with(what, kind):
    losses, real = DISEASES[what].losses, bool(DISEASES[what].happened)
    for seed in range(10_000):
        plan = patients.plan_of(seed, None, losses, real)
        if (plan.disease.what, plan.kind) == (what, kind): return patients.patient(seed, losses=losses, real=real)
    raise LookupError(what)


def trained(what, kind, seed):
    p = patients.admit(one_with(what, kind)._plan, seed)
    p.train()
    return p


def of(what): return next(one_with(w, kind) for w, kind in EACH if w == what)


# ---- each disease does harm, and is told as it is

def do_harm(what, kind, seeds):
    for seed in seeds:
        p, goal = trained(what, kind, seed), twins.loss_of_twin(kind, seed)
        assert p.new_loss() > 1.3*goal, (what, kind, seed, p.new_loss(), goal)
        complaint = DISEASES[what].complaint
        if complaint == NOT: assert p.new_loss() > .7*twins.GUESS, (what, kind, seed, p.new_loss())
        if complaint == NEW: assert sum(p.losses[-20:])/20 < .7*twins.GUESS, (what, kind, seed)
        if complaint == LOST:
            before, after = sum(p.losses[70:90])/20, sum(p.losses[-20:])/20
            assert before < .7*twins.GUESS and not after < 1.5*before, (what, kind, seed, before, after)  # NaN too


@pytest.mark.parametrize(("what", "kind"), QUICK)
def test_diseases_do_harm(what, kind): do_harm(what, kind, [3])


SEEDS = sample(4, range(10))  # the same for all, so that a healthy twin is trained once


@sweep
@pytest.mark.parametrize("what", DISEASES)
def test_all_diseases_do_harm_on_ten_seeds(what):
    kinds = [kind for other, kind in EACH if other == what]
    for seed in SEEDS: do_harm(what, kinds[seed % len(kinds)], [seed])


@sweep
@pytest.mark.parametrize("kind", ["relu", "tanh", "cnn", "rnn"])
def test_healthy_twins_learn(kind):
    for seed in SEEDS: assert twins.loss_of_twin(kind, seed) < .4*twins.GUESS


# ---- treatments

def is_cured(capsys, what, kind):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Detected call of")  # of a scheduler that was left behind
        one_with(what, kind).treat(CURES[what])
    assert capsys.readouterr().out.startswith("ok: cured")


@pytest.mark.parametrize(("what", "kind"), QUICK)
def test_cures(what, kind, capsys): is_cured(capsys, what, kind)


SEED = 3  # of all patients of the next two tests, so that their healthy twins are trained once
SOME = sample(10, EACH, kind=lambda case: case[0])  # each disease, in one kind of network at least


@sweep
@pytest.mark.parametrize(("what", "kind"), SOME)
@pytest.mark.filterwarnings("ignore:Detected call of")  # of a scheduler that was left behind
def test_all_cures(what, kind):
    plan = one_with(what, kind)._plan
    cured = treatment.treatment(lambda seed: patients.admit(plan, seed), SEED, CURES[what])
    assert str(cured).startswith("cured")


def heals(what, kind, f, seed=SEED):
    plan = one_with(what, kind)._plan
    def admit(seed): return patients.admit(plan, seed)
    return treatment.outcome_of(admit(seed), f).cured(lambda: treatment.untreated_loss(admit, seed))


@sweep
@pytest.mark.parametrize(("what", "kind"), SOME)
def test_a_wrong_treatment_cures_nothing(what, kind):
    assert not heals(what, kind, unfreeze if CURES[what] is not unfreeze else plus)


def adam(rate): return lambda p: setattr(p, "optimizer", torch.optim.Adam(p.model.parameters(), rate))


def test_a_rate_that_is_too_low_after_the_cure_is_told():
    p = one_with("other parameters in the optimizer", "rnn")
    with not_yet("The rest comes from the weights or the optimizer that you set: with them, the healthy twin"):
        p.treat(adam(3e-4))


def test_what_a_treatment_chose_is_told_only_where_a_healthy_twin_does_as_badly_with_it():
    def due(loss, twin, alike): return treatment.Outcome(loss, .4, twin, alike).due_to_choice
    assert due(.66, .46, .66) and not due(.66, .46, .46) and not due(.75, .46, .66)
    assert not due(2.08, .46, 2.08), "at the level of guessing, the disease may still be there"


def test_default_weights_are_told_where_one_of_three_ends_too_high():
    "In patient 102, they are a cure; with other weights and data, not for all three."
    hl.patient(102).treat(default_weights)
    plan = one_with("activations explode", "relu")._plan
    with not_yet("One has .* The rest comes from the weights or the optimizer"):
        treatment.treatment(lambda seed: patients.admit(plan, seed), 300, default_weights)


def default_weights(p):
    for layer in p.model.modules():
        if isinstance(layer, nn.Linear): layer.reset_parameters()


def orthogonal(p):
    for layer in p.model.modules():
        if isinstance(layer, nn.Linear): nn.init.orthogonal_(layer.weight, 2**.5 if p.kind == "relu" else 1)


HEALTHY = [("activations explode", "relu", default_weights), ("activations vanish", "relu", default_weights),
           ("units alike", "relu", default_weights), ("dead units", "relu", default_weights),
           ("activations vanish", "tanh", orthogonal), ("units alike", "relu", orthogonal),
           ("other parameters in the optimizer", "rnn", adam(1e-3)), ("learning rate too large", "relu", adam(3e-3))]


@pytest.mark.parametrize(("what", "kind", "f"), HEALTHY[:1])
def test_weights_of_another_kind_cure(what, kind, f): assert heals(what, kind, f)


@sweep
@pytest.mark.parametrize(("what", "kind", "f"), HEALTHY)
def test_healthy_weights_and_optimizers_of_another_kind_cure(what, kind, f):
    if kind not in DISEASES[what].kinds: kind = DISEASES[what].kinds[0]
    for seed in SEEDS: assert heals(what, kind, f, seed), seed


def lower(p): p.optimizer.param_groups[0]["lr"] /= 10


@pytest.mark.parametrize(("f", "chosen"), [
    (nothing, False), (lower, False), (default_weights, True), (adam(1e-3), True)])
def test_a_second_twin_has_what_the_treatment_chose(f, chosen):
    twin = treatment.treat_with_twin(twins.Training("tanh", SEED), f)
    assert (treatment.loss_of(twin) != twins.loss_of_twin("tanh", SEED)) == chosen


def test_weights_that_a_treatment_leaves_as_they_are_allow_nothing():
    p = patients.admit(one_with("activations explode", "relu")._plan, SEED)
    assert treatment.loss_of(treatment.treat_with_twin(p, lower)) == twins.loss_of_twin("relu", SEED)


def test_an_optimizer_that_the_usual_step_cannot_use_allows_nothing():
    def lbfgs(p): p.optimizer = torch.optim.LBFGS(p.model.parameters())
    assert treatment.loss_of(treatment.treat_with_twin(twins.Training("tanh", SEED), lbfgs)) == 0


def test_what_counts_as_cured_depends_on_the_harm():
    def limit(twin, before, alike=math.inf): return treatment.Outcome(1., 1., twin, alike).limit(before)/twin
    limits = [round(limit(.4, before), 2) for before in (.45, .6, 1., 1.6, 2.08, math.inf)]
    assert limits == [1.2, 1.2, 1.2, 1.3, 1.42, 1.42]
    assert math.isclose(limit(.1, math.inf), 1.5) and math.isclose(limit(.9, 2.), 1.2)
    limits = [round(limit(.4, math.inf, alike), 2) for alike in (.3, .4, .45, .6)]
    assert limits == [1.2, 1.2, 1.35, 1.42], "the second twin allows as much as it needs"
    assert not treatment.Outcome(math.inf, 1., .4, math.inf).cured(lambda: math.inf)
    assert not treatment.Outcome(.52, .5, .4, .52).cured(lambda: .52), "no treatment is no cure"


# ---- the step that did the harm

JUMPS = [(kind, seed) for kind in DISEASES["learning rate jumps"].kinds for seed in range(5)]


def jumps(kind, seed): return patients.admit(one_with("learning rate jumps", kind)._plan, seed)


def is_found(kind, seed):
    p, stats = jumps(kind, seed), hl.ActivationStats.for_diagnosis()
    with stats.on(p.model, optimizer=p.optimizer): p.train(after_step=stats.step)
    odd = max(range(len(p.losses)), key=stats.log.values("rate").tolist().__getitem__)
    assert odd + 1 in [spike.step for spike in stats.spikes() if spike.loss], (kind, seed, odd, stats.spikes())


@pytest.mark.parametrize(("kind", "seed"), [("relu", 0), ("rnn", 0)])
def test_spikes_name_the_step_after_the_jump_of_the_rate(kind, seed): is_found(kind, seed)


@sweep
@pytest.mark.parametrize(("kind", "seed"), sample(4, JUMPS))
def test_spikes_name_the_step_on_more_seeds(kind, seed): is_found(kind, seed)


def clipped(p):
    def step(p, x, y):
        loss = p.loss(p.model(x), y)
        p.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(p.model.parameters(), 1.)
        p.optimizer.step()
        p.scheduler.step()
        return loss
    p.step = step


def lower_rates(p): p.scheduler.base_lrs = [rate/10 for rate in p.scheduler.base_lrs]


def other_batches(p): p.rows = torch.randint(len(p.x), p.rows.shape)


@pytest.mark.parametrize("kind", DISEASES["learning rate jumps"].kinds)
@pytest.mark.parametrize("wrong", [clipped, lower_rates, other_batches])
def test_what_does_not_cure_a_jump_of_the_rate(kind, wrong):
    assert not heals("learning rate jumps", kind, wrong)


def test_a_spike_is_what_one_sees():
    p = patients.patient(one_with("learning rate jumps", "relu").seed)
    with not_yet("“spike” is a symptom.*the step at which the loss jumps, and the one before it"): p.check("spike")
    with not_yet("not “learning rate too large”.*rate of the step before"): p.check("lr too high")


def test_doing_nothing_cures_nothing():
    with not_yet("as bad as without a treatment"): of("dead units").treat(nothing)


def test_each_disease_has_a_cure_and_an_id():
    assert {*CURES} == {*DISEASES} and len(DISEASES) >= 20
    assert {*DISEASES} - {*FAULTS} == OWN_NAMES
    assert {d.grade for d in DISEASES.values()} == {1, 2, 3}


# ---- real cases

REAL = [what for what, d in DISEASES.items() if d.happened]


def test_real_cases_are_counted_apart():
    assert sorted(REAL) == sorted(hl.patient(seed, real=True)._plan.disease.what for seed in range(len(REAL)))
    assert "real=True" in repr(hl.patient(0, real=True)) and "real=True" not in repr(hl.patient(0))
    for more in {"difficulty": 2}, {"losses": 2}, {"faults": 2}:
        with pytest.raises(ValueError, match="a real case.*no choice of difficulty"): hl.patient(0, real=True, **more)


def test_a_number_stays_the_patient_that_it_was():
    those = [(None, 1), (1, 1), (2, 1), (3, 1), (None, 2)]
    plans = [patients.plan_of(seed, grade, losses) for grade, losses in those for seed in range(70)]
    text = "; ".join(f"{plan.disease.what} in {plan.kind}, {plan.code}" for plan in plans)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "d9e6d7f9f0565ab2"


@pytest.mark.parametrize("what", REAL)
def test_the_right_name_tells_the_report(what, capsys):
    p, happened = of(what), DISEASES[what].happened
    p.check(what, p._layers[0] if p._layers else None)
    p.answer()
    named, answered = capsys.readouterr().out.split(f"This happened: {happened}.\n")[:-1]
    assert named.startswith(f"ok: {what}") and answered.startswith(what) and happened not in repr(p)


@pytest.mark.parametrize("what", REAL)
def test_the_report_is_that_of_a_program_of_the_bench(what):
    report, told = DISEASES[what].happened.split(": ", 1)
    source, year = report.split(", ")
    programs = [path.read_text() for path in (REPO/"tests"/"bench"/"programs"/"open_half").glob("*.py")]
    assert any(f'SOURCE, YEAR = "{source}", {year}\n' in program for program in programs) and len(told) > 60


def test_made_up_patients_have_no_report(capsys):
    of("no zero_grad").check("no zero_grad")
    assert "This happened" not in capsys.readouterr().out


OTHERS = [(what, f) for what, others in OTHER_CURES.items() for f in others]


@sweep
@pytest.mark.parametrize(("what", "f"), sample(2, OTHERS, name=lambda case: f"{case[0]}, {case[1].__name__}"))
@pytest.mark.filterwarnings("ignore:Detected call of")  # of a scheduler that was left behind
def test_another_right_treatment_cures_too(what, f):
    plan = of(what)._plan
    assert str(treatment.treatment(lambda seed: patients.admit(plan, seed), SEED, f)).startswith("cured")


# ---- two losses

TWO = [what for what, d in DISEASES.items() if d.losses == 2]


def each_loss(what, kind, seed):
    "The gradients of each loss in a tenth of the steps: {loss: norms}, and {layer: cosines}."
    p, norms, cosines = patients.admit(one_with(what, kind)._plan, seed), {}, {}
    layers = {name: [*layer.parameters()] for name, layer in p.model.named_children() if [*layer.parameters()]}

    def parts(**losses):
        if len(p.losses) % 10 == 0:
            of = {name: [torch.cat([g.flatten() for g in torch.autograd.grad(loss, ps, retain_graph=True,
                         allow_unused=True, materialize_grads=True)]) for ps in layers.values()]
                  for name, loss in losses.items()}
            for name, grads in of.items(): norms.setdefault(name, []).append(torch.cat(grads).norm().item())
            for layer, a, b in zip(layers, *of.values()):
                cosines.setdefault(layer, []).append(F.cosine_similarity(a, b, 0).item())
        return sum(losses.values())
    p.parts = parts
    p.train()
    return norms, {layer: sorted(of)[len(of)//2] for layer, of in cosines.items()}


def shows_two_losses(what, kind, seed):
    norms, cosines = each_loss(what, kind, seed)
    task, other = norms.values()
    ratios = sorted(b/a for a, b in zip(task, other))
    if what == "loss outweighs": assert ratios[len(ratios)//2] > 300, ratios
    else: assert cosines.pop("head") < -.6 and .3 < ratios[len(ratios)//2] < 3 and min(cosines.values()) >= 0


@pytest.mark.parametrize("what", TWO)
def test_two_losses_fight_in_one_layer_or_one_outweighs(what): shows_two_losses(what, DISEASES[what].kinds[0], 3)


@sweep
@pytest.mark.parametrize("what", TWO)
def test_two_losses_on_more_seeds(what):
    for seed in SEEDS: shows_two_losses(what, DISEASES[what].kinds[0], seed)


@pytest.mark.parametrize("what", TWO)
def test_what_does_not_cure_a_patient_of_two_losses(what):
    slower = lambda p: p.optimizer.param_groups[0].update(lr=p.optimizer.param_groups[0]["lr"]/10)  # noqa: E731
    assert not heals(what, DISEASES[what].kinds[0], slower)


def says_it_first(what, seed):
    p = patients.admit(one_with(what, DISEASES[what].kinds[0])._plan, seed)
    with hl.compare_losses(p.model, every=10) as parts:
        p.parts = parts
        p.train()
    first = parts.findings()[0]
    assert (first.what, first.claimed) == (what, "likely") and list(first.layers) == of(what)._layers, parts


@pytest.mark.parametrize("what", TWO)
def test_comparing_two_losses_names_the_disease(what): says_it_first(what, 3)


@sweep
@pytest.mark.parametrize("what", TWO)
def test_comparing_two_losses_names_the_disease_on_more_seeds(what):
    for seed in SEEDS: says_it_first(what, seed)


def test_a_diagnosis_of_two_losses_compares_them():
    for what in TWO: assert of(what).diagnose().first.what == what


def test_the_two_losses_are_added_as_they_are():
    for what in TWO:
        one, other = (patients.admit(of(what)._plan, SEED) for _ in range(2))
        other.parts = lambda task, **more: task + sum(more.values())
        assert one.train(3) == other.train(3) and "two losses" in repr(of(what)) and "losses=2" in repr(of(what))
    assert "two losses" not in repr(hl.patient(0)) and hl.patient(0).losses == []


@pytest.mark.parametrize(("asked", "told"), [
    ({"losses": 3}, "1 or 2"), ({"losses": 2, "difficulty": 1}, "difficulty 1"), ({"faults": 3}, "2 for a case"),
    ({"faults": 2, "difficulty": 1}, "no choice of difficulty"), ({"faults": 2, "losses": 2}, "one loss")])
def test_odd_numbers_of_losses_and_faults(asked, told):
    with pytest.raises(ValueError, match=told): hl.patient(0, **asked)


# ---- patients

def test_seeds_go_through_all_diseases_and_difficulties():
    of_one, of_two = ({d.what for d in DISEASES.values() if d.losses == losses and not d.happened} for losses in (1, 2))
    assert {patients.plan_of(seed, None).disease.what for seed in range(len(of_one))} == of_one
    assert {hl.patient(seed, losses=2)._plan.disease.what for seed in range(len(of_two))} == of_two
    for difficulty in 1, 2, 3: assert {hl.patient(seed, difficulty).difficulty for seed in range(12)} == {difficulty}


def test_a_patient_is_the_same_each_time_and_does_not_touch_random_numbers():
    state = torch.get_rng_state()
    assert hl.patient(8).train(4) == hl.patient(8).train(4)
    for a, b in zip(hl.patient(7).model.parameters(), hl.patient(7).model.parameters()): assert torch.equal(a, b)
    assert torch.equal(torch.get_rng_state(), state)


def test_what_is_printed_does_not_name_the_disease():
    for what, kind in EACH:
        p = one_with(what, kind)
        told = repr(p) + repr(p.model)
        for name in (what, *DISEASES[what].aliases):
            assert name in ("dropout", "sigmoid", "batchnorm") or name not in told.lower(), (name, told)
        if p.step is not twins.usual_step: assert p.step.__name__ == "step" and inspect.getsource(p.step)


@pytest.mark.parametrize("seed", [-1, 1.5, "7", True, None])
def test_odd_seeds(seed):
    with pytest.raises(ValueError, match="whole number"): hl.patient(seed)


def test_odd_difficulty():
    with pytest.raises(ValueError, match="1, 2, 3, or None"): hl.patient(1, difficulty=4)


# ---- names

def test_every_alias_leads_to_its_disease():
    for d in DISEASES.values():
        for name in (d.what, *d.aliases): assert id_of(name) == d.what, name
        assert {*d.also} <= {*DISEASES, *FAULTS}


@pytest.mark.parametrize(("name", "what"), [
    ("Dying ReLU", "dead units"), ("dead-neurons", "dead units"), ("forgot zero_grad", "no zero_grad"),
    ("the learning rate too high", "learning rate too large"), ("Overfitting", "too few samples"),
    ("Softmax before cross-entropy", "activation before the loss"), ("data leak", "label in the input"),
    ("exploding gradients", "gradients explode"),
    ("LR too high", "learning rate too large"), ("lr decays too fast", "scheduler each batch"),
    ("LR spike", "learning rate jumps"), ("Gradient conflict", "losses fight"), ("forgotten weight", "loss outweighs"),
    ("NaN in the backward pass", "NaN or Inf"), ("data leakage", "label in the input"),
    ("parameters not in the optimizer", "not in the optimizer"),
    ("scheduler decays too fast", "scheduler each batch"), ("running statistics not updated", "batch norm"),
    ("model in eval mode", "eval mode"), ("zero_grad not called", "no zero_grad"),
    ("Missing ReLU", "no activation"), ("forgot to shuffle", "samples not shuffled"),
    ("Clipping before unscale_", "clipping before unscaling"), ("ReduceLROnPlateau", "wrong plateau mode"),
    ("labels are wrong", "labels shuffled"), ("train/test mismatch", "train and validation differ")])
def test_what_people_write(name, what): assert id_of(name) == what


def test_right_answers(capsys):
    p = of("dead units")
    p.check("dying relu", p._layers[0])
    p.check("dead units", p._layers[1])
    p.check("dead units", p.model.get_submodule(p._layers[0]))
    assert capsys.readouterr().out.count("ok: dead units in ") == 3
    of("no zero_grad").check("no zero_grad")
    assert "whole run" in capsys.readouterr().out
    of("no zero_grad").check("no zero_grad", "lin1")
    assert "whole run" in capsys.readouterr().out


def test_what_shows_it_is_told_without_a_question():
    for d in DISEASES.values():
        told = look_in_words(d.look)
        assert told[-1] == "." and told[-2] not in "?." and len(told) > 20 and told[:-1] in d.look, told


def test_the_score_counts_what_was_tried(monkeypatch, capsys):
    monkeypatch.setattr(patients, "CHARTS", {})
    p = patients.patient(of("learning rate too small").seed)
    p.train(2)
    p.train(2)
    with not_yet("It is not"): p.check("wrong sign")
    with not_yet("No disease is named"): p.check("flu")
    again = patients.patient(p.seed)
    again.train(1)
    with pytest.raises(NotYet): again.treat(called)
    again.treat(CURES["learning rate too small"])
    assert "Score: 6 points (2 runs, 1 wrong name, 1 wrong treatment). It was treated" in capsys.readouterr().out
    again.check("learning rate too small")
    again.treat(CURES["learning rate too small"])
    assert "Score: 6 points (2 runs, 1 wrong name, 1 wrong treatment).\n" in capsys.readouterr().out
    assert patients.patient(p.seed + 1)._chart.points == 0


def test_who_was_told_has_no_score(tmp_path, monkeypatch, capsys):
    begin(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(patients, "CHARTS", {})
    monkeypatch.setattr(patients, "treatment", lambda *given: "cured.")
    p = hl.patient(of("dead units").seed)
    with not_yet(r"It is not .*\(2 points\)$"): p.check("wrong sign")
    p.answer()
    p.treat(nothing)
    out = capsys.readouterr().out
    assert "You were told what it has, so there is no score" in out and "Score" not in out
    assert read_tries(tmp_path/FILE) == []


def test_a_cure_is_noted_in_a_learners_folder(tmp_path, monkeypatch):
    begin(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(patients, "CHARTS", {})
    monkeypatch.setattr(patients, "treatment", lambda *given: "cured.")
    p = hl.patient(of("dead units").seed)
    p.check("dead units", p._layers[0])
    p.treat(nothing)
    (row,) = read_tries(tmp_path/FILE)
    assert (row["what"], row["right"], row["points"], row["named"]) == (f"patient({p.seed})", True, 0, True)
    assert "Clinic: 1 patient cured" in str(how_far())


def test_a_parameter_names_its_layer(capsys):
    of("not in the optimizer").check("not in the optimizer", of("not in the optimizer")._layers[0])
    p = one_with("not in the optimizer", "tanh")
    p.check("not in the optimizer", "lin1.weight")
    assert capsys.readouterr().out.count("ok: ") == 2


def test_a_scheduler_may_be_taken_away(capsys):
    one_with("scheduler each batch", "tanh").treat(lambda p: setattr(p, "scheduler", None))
    assert capsys.readouterr().out.startswith("ok: cured")


def test_wrong_answers_lead_on():
    p = patients.patient(of("dead units").seed)
    for _ in range(3):
        with not_yet("No disease is named 'flu'.*lists them all.$"): p.check("flu")  # this is no try
    with not_yet("It is not “wrong sign”.*would have looked at the outputs of the layers"): p.check("wrong sign")
    with not_yet("That is the disease. Which layer has it?"): p.check("dead units")
    with not_yet(r"not in 'head'.*fraction of zeros.*\n\nTry 3.*patient.answer"): p.check("dead units", "head")
    with not_yet("'dead unitz'. Did you mean dead units"): p.check("dead unitz")
    with not_yet("has no layer 'act9'. Its layers are .*lin1"): p.check("dead units", "act9")
    with not_yet("not the name of a disease"): p.check("loss does not fall")
    for odd in None, 3, ["a"]:
        with not_yet("No disease is named"): p.check(odd)


def test_answer(capsys):
    for what in DISEASES:
        of(what).answer()
        assert capsys.readouterr().out.startswith(what)


# ---- treatments that are none

def another_model(p): p.model = nn.Linear(64, 8)
def another_layer(p): p.model.lin2 = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
def other_data(p): p.x = p.x/255
def in_the_data(p): p.x.div_(255)
def few_rows(p): p.rows = p.rows[:3]
def no_tensor(p): p.rows = None
def training(p): p.train()
def stub(p): raise NotImplementedError
def stops(p): p.model.nowhere.bias.zero_()
def called(p): p.step = None
def one_argument(p): p.batch = lambda i: (p.x[p.rows[i]], p.y[p.rows[i]])
def breaks(p): p.loss = lambda output, labels: output.nothing()


@pytest.mark.parametrize(("f", "told"), [
    (another_model, "may not replace the model. Change it in place"),
    (another_layer, "parameters of the model have changed: lin2"),
    (other_data, "Leave the stored data"),
    (in_the_data, "Leave the stored data"), (few_rows, "one row for each of the 150"),
    (no_tensor, "one row for each"), (training, "The clinic trains it"), (stub, "Nothing is written here yet"),
    (stops, "AttributeError"), (called, "are functions"), (breaks, "training stops at step 0"),
    (one_argument, "The clinic calls `batch.patient, i.`"),
    (lambda: None, "TypeError"), (3, "needs a function")])
def test_treatments_that_are_none(f, told):
    with pytest.raises(NotYet, match=told): of("constant output").treat(f)


def only_this_seed(p):
    if p.seed < treatment.SEED_DISTANCE: fresh_weights(p)


def in_the_batch_only(p):
    mean, std = p.x.mean(), p.x.std()
    p.batch = lambda p, i: ((p.x[p.rows[i]] - mean)/std, p.y[p.rows[i]])


def test_nearly_cured_is_not_called_lucky(monkeypatch):
    outcomes = iter([treatment.Outcome(loss, .5, twin, .55) for loss, twin in ((.5, .46), (.68, .47), (.5, .45))])
    monkeypatch.setattr(treatment, "outcome_of", lambda p, f: next(outcomes))
    with not_yet("helps all three, but one has 0.68, where at most 0.63 is allowed"): of("dead units").treat(nothing)


def test_what_is_still_wrong_is_told():
    with not_yet("helps this patient but not the others"): of("constant output").treat(only_this_seed)
    with not_yet("healthy twin"): one_with("inputs not scaled", "relu").treat(in_the_batch_only)


def test_the_patient_is_left_as_it_is():
    p = of("constant output")
    before = [q.clone() for q in p.model.parameters()]
    with pytest.raises(NotYet): p.treat(nothing)
    p.diagnose()
    assert all(map(torch.equal, before, p.model.parameters())) and not p.losses
    assert not hl.hooks_on(p.model)


def test_outputs_may_be_logits_probabilities_or_their_logarithms():
    p = twins.Training("relu", 0)
    x, y = p.x[:50], p.y[:50]
    loss = p.loss_on(x, y)
    for last in nn.Softmax(1), nn.LogSoftmax(1):
        p.model.add_module("last", last)
        assert math.isclose(p.loss_on(x, y), loss, rel_tol=1e-5)


def test_can_be_imported_lazily():
    from hooklab.exercises import patient
    assert patient is hl.patient and hl.Patient is patients.Patient


def test_hooks_see_a_patient():
    p, lengths = hl.patient(0), []
    with hl.Hooks(p.model, lambda m, i, o: None) as hooks, hl.step_hook(p.optimizer, lambda *args: lengths.append(1)):
        p.train(3)
    assert hooks and len(p.losses) == 3
