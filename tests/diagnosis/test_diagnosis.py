"""Each fault is found in runs that have it, healthy runs are left alone, and no record makes the diagnosis fail."""
import math
import warnings
from functools import partial

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.diagnosis.diagnosing import FAULTS, Diagnosis, diagnose
from hooklab.findings.rules import pages
from hooklab.stats.activation_stats import ActivationStats
from hooklab.stats.records.history import History, WeightHistory
from hooklab.stats.records.moments import row_names
from support.portions import one_in
from support.runs import adam, broken, full, healthy, mlp, sgd, shallow, steps, train, usual
from tests.bench.diagnose_cases import faults

pytestmark = pytest.mark.usefixtures("one_thread")
seeds = [0, pytest.param(1, marks=pytest.mark.slow)]
# What cannot be told from means and deviations of layers with parameters
needs_more = {"detach in the middle", "optimizer of another model", "deep sigmoid", "weights too large, gradients", "a scale that overflows",
              "tanh, weights of deviation 1", "sigmoid, weights of deviation 5",
              "Adam, rate 1", "Adam, rate 1, CNN", "Adam, rate 1, LSTM", "Adam, rate 1, transformer"}


def found(diagnosis): return [f.what for f in diagnosis]


# Faults

@pytest.mark.parametrize("seed", seeds)
@pytest.mark.parametrize("name", one_in(2, broken))
def test_fault_is_found(name, seed):
    assert broken[name][0] in diagnose(full(name, seed))


@pytest.mark.parametrize("seed", seeds)
@pytest.mark.parametrize("name", one_in(2, [name for name in broken if name not in needs_more]))
def test_fault_is_found_in_the_usual_record(name, seed):
    assert broken[name][0] in diagnose(usual(name, seed))


where = {  # layers, and the first step
    "a weight becomes NaN": (["3"], 12), "NaN in a CNN": (["3"], 12), "layer is not called": (["forgotten"], 0), "detach in the middle": (["1", "3"], 0),
    "bias of -10": (["3"], 0), "bias of -20 after a while": (["5"], 15), "CNN, bias of -10": (["2"], 5), "tanh, weights of deviation 1": (["2", "4", "6"], 0),
    "deep sigmoid": ([str(i) for i in range(1, 7)], 0), "all weights zero": ([str(i) for i in range(1, 7)], 0)}


@pytest.mark.parametrize("name", where)
def test_fault_is_found_where_it_is(name):
    finding = next(f for f in diagnose(full(name, 0)) if f.what == broken[name][0])
    assert (finding.layers, finding.steps[0]) == where[name]


def test_how_sure():
    assert next(f for f in diagnose(full("bias of -10", 0)) if f.what == "dead units").sure == "certain"  # gradients have been seen
    assert next(f for f in diagnose(usual("bias of -10", 0)) if f.what == "dead units").sure == "likely"
    assert next(f for f in diagnose(full("SGD, rate 1e-6", 0)) if f.what == "learning rate too small").sure == "likely"
    assert next(f for f in diagnose(usual("SGD, rate 1e-6", 0)) if f.what == "learning rate too small").sure == "possible"


@pytest.mark.parametrize("name", one_in(2, broken))
@pytest.mark.parametrize("n", [1, 2, 5])
def test_short_runs_say_no_more_than_long_ones(name, n):
    assert found(diagnose(full(name, 0, 0))) == ["nothing recorded"]
    assert set(found(diagnose(full(name, 0, n)))) <= set(found(diagnose(full(name, 0))))


# Health

@pytest.mark.parametrize("seed", seeds)
@pytest.mark.parametrize("name", one_in(2, healthy))
def test_healthy_run_is_left_alone(name, seed):
    for look in full, usual:
        for n in (1, 2, 3, 5, 8, 13, 21, steps): assert not (d := diagnose(look(name, seed, n))), d
        assert found(diagnose(look(name, seed, 0))) == ["nothing recorded"]


def test_frozen_layers_are_no_fault():
    torch.manual_seed(0)
    model = mlp(*shallow)
    model[1].requires_grad_(False)
    model[3].requires_grad_(False)
    d = diagnose(train(model, sgd(model.parameters(), lr=.02), grads=True))
    assert not d


class Lora(nn.Module):
    "Frozen layers, some of them behind a trained one in the order of definition, and what has no parameters."
    def __init__(self, frozen=True):
        super().__init__()
        self.start = nn.Flatten()
        self.query, self.key, self.value, self.drop, self.head = *(nn.Linear(64, 64) for _ in range(3)), nn.Dropout(.1), nn.Linear(64, 10)
        self.key.requires_grad_(not frozen)
        self.value.requires_grad_(not frozen)

    def forward(self, x):
        x = self.start(x)
        return self.head(self.query(x)*self.drop(self.key(x)).detach().tanh() + self.value(x).detach())


def tuned(frozen, **options):
    torch.manual_seed(0)
    model = Lora(frozen)
    return train(model, adam([p for p in model.parameters() if p.requires_grad], lr=1e-3), **options)


@pytest.mark.parametrize("options", [{"grads": True}, {"grads": True, "include_paramless": True}])
def test_frozen_layers_behind_a_trained_one_are_no_fault(options, tmp_path):
    s = tuned(True, **options)
    assert "key" in s.names and not diagnose(s)
    s.save(tmp_path/"run")
    assert not diagnose(ActivationStats.load(tmp_path/"run"))
    s = tuned(False, **options)  # the same layers, meant to be trained and cut off
    assert [f.layers for f in diagnose(s) if f.what == "not trained"] == [["key", "value"]]
    s.save(tmp_path/"run")
    assert str(diagnose(ActivationStats.load(tmp_path/"run"))) == str(diagnose(s))


def test_files_of_before_can_be_diagnosed(tmp_path):
    "What a layer is followed by, and whether it was frozen, is not in them."
    import json

    from safetensors import safe_open
    from safetensors.torch import save_file
    s = full("bias of -10", 0)
    s.save(tmp_path/"run")
    with safe_open(tmp_path/"run", "pt") as file:
        about, tensors = json.loads(file.metadata()["hooklab"]), {name: file.get_tensor(name) for name in file.keys()}
    del about["unrecorded"]
    for facts in about["facts"].values(): del facts["trainable"], facts["followed"]
    save_file(tensors, tmp_path/"old", {"hooklab": json.dumps(about)})
    old = ActivationStats.load(tmp_path/"old")
    assert old.history.trainable is None and old.history.followed == {}
    assert next(f for f in diagnose(old) if f.what == "dead units").sure == "certain"


class Wired(nn.Module):
    "The same network without a `Sequential`, so what follows a layer is unknown."
    def __init__(self, layers, act):
        super().__init__()
        self.layers, self.act = nn.ModuleList(m for m in layers if isinstance(m, nn.Linear)), act
    def forward(self, x):
        x = x.flatten(1)
        for m in self.layers[:-1]: x = self.act(m(x))
        return self.layers[-1](x)


def pushed_down(act, wired=False, to=-15., **options):
    "A run in which a layer returns numbers below zero only."
    torch.manual_seed(0)
    model = mlp(*shallow, act=act)
    with torch.no_grad(): model[3].bias.fill_(to)
    if wired: model = Wired(model, act())
    return train(model, adam(model.parameters(), lr=1e-3), **options)


def dead(s): return [(f.sure, f.evidence) for f in diagnose(s) if f.what == "dead units"]


@pytest.mark.parametrize("options", [{}, {"with_hist": True, "grads": True}, *(
    pytest.param(options, marks=pytest.mark.slow) for options in ({"grads": True}, {"with_hist": True}))])
@pytest.mark.parametrize("act", [partial(nn.LeakyReLU, .2), partial(nn.LeakyReLU, .3), nn.ELU, nn.Tanh, nn.Identity, lambda: nn.Sequential(nn.Dropout(.1), nn.LayerNorm(64), nn.ReLU())],
                         ids=["LeakyReLU", "LeakyReLU .3", "ELU", "Tanh", "Identity", "LayerNorm"])
def test_no_dead_units_where_no_relu_follows(act, options):
    s = pushed_down(act, **options)
    assert s.history.values("near_zero")[s.names.index("3")].min() > .95
    assert not dead(s)


@pytest.mark.parametrize("act, followed, sure, words", [
    (nn.ReLU, "ReLU", "likely", "The ReLU after them returns only zeros."),
    (nn.GELU, "GELU", "possible", "The GELU after them may return almost nothing; record gradients with grads=True to find out."),
    (lambda: nn.Sequential(nn.Identity(), nn.ReLU6()), "ReLU6", "likely", "The ReLU6 after them returns only zeros."),
])
def test_dead_units_behind_what_closes(act, followed, sure, words):
    s = pushed_down(act)
    assert s.history.followed[s.names[1]] == followed and dead(s) == [(sure, dead(s)[0][1])] and dead(s)[0][1].endswith(words)
    (certain, evidence), = dead(pushed_down(act, grads=True))
    assert certain == "certain" and evidence.endswith("Their gradients are zero.")


def test_where_nobody_knows_what_follows():
    "No ReLU is claimed, and gradients decide."
    s = pushed_down(nn.ReLU, wired=True)
    assert s.history.followed == {}
    ((sure, evidence),) = dead(s)
    assert sure == "possible" and evidence.endswith("If a ReLU follows, it returns only zeros; record gradients with grads=True to find out.")
    ((sure, evidence),) = dead(pushed_down(nn.ReLU, wired=True, grads=True))
    assert sure == "certain" and "ReLU" not in evidence
    for options in ({"grads": True}, {"grads": True, "with_hist": True}): assert not dead(pushed_down(partial(nn.LeakyReLU, .4), wired=True, **options))


def test_a_part_of_the_units():
    "A ReLU that is open for one number in thirty, and the same layer before a LeakyReLU; gradients tell them apart where what follows is unknown."
    def part(act, wired=False, **options):
        torch.manual_seed(0)
        model = mlp(64, 256, 256, 10, act=act)
        with torch.no_grad(): model[3].bias[:-8] = -15
        return train(Wired(model, act()) if wired else model, sgd(model.parameters(), lr=1e-4), **options)
    for wired in (False, True):
        for options in ({}, {"grads": True}):
            ((sure, evidence),) = dead(part(nn.ReLU, wired, **options))
            assert sure == "possible" and ("If a ReLU follows" if wired else "After the ReLU that follows") in evidence
    assert not dead(part(partial(nn.LeakyReLU, .4))) and not dead(part(partial(nn.LeakyReLU, .4), wired=True, grads=True))


class Doubled(nn.Module):
    "A net beside a copy that is not trained, such as the target of a Q-learner; units of the copy are dead."
    def __init__(self, without_graph):
        super().__init__()
        torch.manual_seed(0)
        self.net, self.copy, self.without_graph = mlp(*shallow), mlp(*shallow), without_graph
        with torch.no_grad(): self.copy[3].bias.fill_(-10)

    def forward(self, x):
        with torch.set_grad_enabled(not self.without_graph): aside = self.copy(x)
        return self.net(x) + aside


@pytest.mark.parametrize("without_graph", [False, True])
def test_dead_units_of_a_copy_that_is_not_trained(without_graph):
    s = train(model := Doubled(without_graph), sgd(model.parameters(), lr=1e-2), grads=True)
    assert s.history.values("near_zero")[s.names.index("copy.3")].min() > .99
    assert bool(dead(s)) != without_graph


def test_rare_classes_are_no_dead_units():
    "The last layer may say no to nearly everything."
    torch.manual_seed(0)
    model = mlp(*shallow[:-1], 10)
    with torch.no_grad(): model[-1].bias.fill_(-6)
    for options in {}, {"grads": True}: assert not diagnose(train(model, adam(model.parameters(), lr=1e-3), **options))


def test_negative_outputs_that_learn_are_alive():
    "A layer without a ReLU behind it may return negative numbers only: its gradients tell."
    torch.manual_seed(0)
    model = mlp(*shallow, act=lambda: nn.LeakyReLU(.3))
    with torch.no_grad(): model[3].bias.fill_(-15)
    s = train(model, adam(model.parameters(), lr=1e-3), grads=True)
    assert s.history.values("near_zero")[1].min() > .99
    assert "dead units" not in diagnose(s)


@pytest.mark.parametrize("n_skipped", [1, 5])
@pytest.mark.parametrize("scaled", [True, False])
def test_steps_that_a_scaler_skips_are_no_fault(n_skipped, scaled):
    torch.manual_seed(0)
    model = mlp(*shallow)
    count = iter(range(1000))
    hook = model[-1].register_full_backward_pre_hook(lambda m, grads: (grads[0]*math.inf,) if next(count) < n_skipped else grads)
    s = train(model, sgd(model.parameters(), lr=.02), grads=True, scale=1024.)
    hook.remove()
    assert s.skipped == list(range(n_skipped))
    if not scaled: s.scaled = False
    assert not diagnose(s)


# Each number that a judgment rests on

def made(names, outputs, grads=None):
    "A record with these means and deviations: layer, step, of 64 numbers each."
    def history(kind, mean, std):
        h = History(names, row_names(False, False))
        h.kind, n = kind, 64
        table = torch.stack([torch.full_like(mean, n), mean, std**2*(n - 1), n*torch.special.ndtr((.05 - mean)/std)])
        h.fill(list(range(mean.shape[1])), table.permute(2, 0, 1))
        return h
    s = ActivationStats()
    s.history = history("activations", *outputs)
    if grads: s.gradients = history("gradients", *grads)
    return s


def test_trend_needs_depth_and_steadiness():
    mean, fall = torch.zeros(9, 6), 10**-torch.linspace(0, 5, 9)[:, None].expand(9, 6)
    assert found(diagnose(made(list("abcdefghi"), (mean, fall)))) == ["activations vanish"]
    assert found(diagnose(made(list("abcdefghi"), (mean, fall.flip(0))))) == ["activations explode"]
    jagged = fall[[0, 7, 1, 6, 2, 5, 3, 4, 8]]
    assert not diagnose(made(list("abcdefghi"), (mean, jagged)))
    assert not diagnose(made(list("abc"), (mean[:3], fall[[0, 4, 8]])))


def test_inf_that_is_passed_on_by_nobody_may_be_a_mask():
    mean, std = torch.zeros(3, 6), torch.ones(3, 6)
    mean[1], std[1] = -math.inf, math.nan
    d = diagnose(made(["scores", "mask", "out"], (mean, std)))
    assert [(f.what, f.sure, f.layers) for f in d] == [("NaN or Inf", "possible", ["mask"])]
    mean[2, 3:] = math.nan
    assert next(iter(diagnose(made(["scores", "mask", "out"], (mean, std))))).sure == "certain"


def test_nan_that_begins_in_gradients():
    ok, grads = torch.zeros(3, 9), torch.zeros(3, 9)
    grads[:2, 5], ok[:, 6:], grads[:, 6:] = math.nan, math.nan, math.nan
    d = diagnose(made(["a", "b", "c"], (ok, torch.ones(3, 9)), (grads, torch.ones(3, 9))))
    assert d.findings[0].layers == ["b"] and d.findings[0].steps[0] == 5 and "gradients" in d.findings[0].evidence


def test_constant_last_step():
    mean, std = torch.ones(2, 9), torch.ones(2, 9)
    std[0] = 0
    assert [(f.what, f.layers) for f in diagnose(made(["a", "b"], (mean, std)))] == [("constant output", ["a"])]


# What is said

def test_text_of_a_healthy_run():
    d = diagnose(usual("MLP, ReLU, SGD", 0))
    lacks = "the loop, the inputs, the loss, gradients, saturation, samples and units"
    record = "record all of it with ActivationStats.for_diagnosis()"
    assert not d and str(d).startswith(f"Nothing unusual in 40 steps of 4 layers. Not judged: {lacks}; {record}. ")
    d = diagnose(full("MLP, ReLU, SGD", 0))
    lacks = "the loop, the inputs, the loss, samples and units"
    assert str(d) == f"Nothing unusual in 40 steps of 8 layers. Not judged: {lacks}; {record}"
    model = mlp(*shallow)
    d = diagnose(train(model, sgd(model.parameters(), .02), loop=True, grads=True, samples=True))
    assert str(d) == "Nothing unusual in 40 steps of 4 layers" and d._repr_html_() == f"<p><b>{d}</b></p>"


def test_text_of_a_finding():
    d = diagnose(full("bias of -10", 0))
    text, page = str(d.all), d.all._repr_html_()
    assert d and len(d) == len(list(d)) and text.startswith(f"{len(d)} findings in 40 steps of 8 layers")
    for f in d:
        for said in (f.what, f.evidence, "" if f.follows else f.advice, f.where): assert said in text
    assert page.count("<li>") == page.count("</li>") == len(d)


def test_names_are_escaped():
    mean, std = torch.zeros(2, 9), torch.ones(2, 9)
    std[0] = 0
    assert "&lt;b&gt;" in (page := diagnose(made(["<b>", "x"], (mean, std)))._repr_html_()) and "in <b>" not in page


def test_nothing_recorded():
    d = diagnose(ActivationStats())
    assert d and len(d) == 1 and "nothing recorded" in d and str(d).startswith("Nothing was recorded: nothing has been recorded yet")
    assert d.findings[0].where == "" and "(step" not in str(d) + str(d.findings[0])
    assert d._repr_html_().startswith("<p><b>Nothing was recorded: ")


@pytest.mark.parametrize("given, hint", [(nn.Linear(1, 1), r"a Linear; record a run with ActivationStats\(\).on\(model\) as s: …, then call diagnose\(s\)"),
                                         ("run.safetensors", "a str; record a run"), (History([], row_names(False, False)), "a History; record a run")])
def test_what_is_no_record(given, hint):
    with pytest.raises(TypeError, match=f"diagnose reads what an ActivationStats recorded, but got {hint}"): diagnose(given)


def test_a_learner_is_told_where_its_record_is():
    learn = hl.synth_learner(cbs=ActivationStats(), quiet=True)
    with pytest.raises(TypeError, match=r"got a Learner; .*call diagnose\(learner.activation_stats\)"): diagnose(learn)


def test_each_fault_has_a_run_and_advice():
    planted = {what for what, *_ in broken.values()} | {what for case in faults for what in case.causes}
    assert set(FAULTS) - planted == {
        "nothing recorded", "loss does not fall", "loss rises",  # these follow from others
        "spike", *pages()["losses"], *pages()["beside"]}  # they have tests of their own
    assert all(callable(fault.advice) or fault.advice.endswith(".") for fault in FAULTS.values())


def test_gradients_alone():
    torch.manual_seed(0)
    model = mlp(*shallow)
    d = diagnose(train(model, sgd(model.parameters(), lr=.02), is_forward=False))
    assert not d and len(d.unknown) == 1 and "the loss, outputs, saturation" in str(d)
    d = diagnose(train(model, sgd(model.parameters(), lr=.02), is_forward=False, loop=True))
    assert {"outputs; record them with is_forward=True"} < {*d.unknown}, d.unknown


def test_file(tmp_path):
    s = full("bias of -10", 0)
    s.save(tmp_path/"run.safetensors")
    assert str(diagnose(ActivationStats.load(tmp_path/"run.safetensors"))) == str(diagnose(s))


class Lends(nn.Module):
    "A model that uses the weights of a layer and never calls it."
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x): return F.linear(x, self.layer.weight*2, self.layer.bias)


def test_layers_that_lend_their_weights_are_no_fault():
    def recorded(model, trained):
        optimizer = sgd(trained.parameters(), lr=.02)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with ActivationStats.for_diagnosis().on(model, optimizer=optimizer) as s:
                for _ in range(3):
                    loss = F.cross_entropy(trained(torch.randn(8, 64)), torch.randint(10, (8,)))
                    loss.backward()
                    optimizer.step()
                    s.step(loss)
        return diagnose(s)
    model = Lends()
    d = recorded(model, model)
    assert not d and found(d) == ["nothing recorded"] and "only their weights are used" in str(d)
    d = recorded(Lends(), model)
    assert d.first.sure == "certain" and "only their weights" not in str(d), "another model is trained"


def test_while_it_records():
    model = mlp(*shallow)
    with ActivationStats().on(model) as s:
        assert found(diagnose(s)) == ["nothing recorded"]
        model(torch.randn(4, 64))
        s.step()
        assert isinstance(diagnose(s), Diagnosis)


def test_learner():
    learn = hl.synth_learner(cbs=ActivationStats(grads=True), quiet=True)
    learn.fit(2)
    assert isinstance(hl.diagnose(learn.activation_stats), Diagnosis)


# Any record

odd = st.sampled_from([0., -0., 1., -1., 1e-30, 1e30, -1e38, .05, math.nan, math.inf, -math.inf, .3, -7.])


@st.composite
def records(draw):
    "A record of anything: gaps, NaN, Inf, one layer, no steps."
    n_layers, n_steps = draw(st.integers(0, 7)), draw(st.sampled_from([0, 1, 2, 3, 5, 6, 12, 25, 36]))
    names = [f"layer{i}" for i in range(n_layers)]
    kinds = draw(st.sets(st.sampled_from(["gradients", "updates"])))
    rows = row_names(draw(st.booleans()), draw(st.booleans()))

    def table(n_rows, n_columns, first):
        pool = torch.tensor(draw(st.lists(odd, min_size=1, max_size=6)))
        seed = draw(st.integers(0, 1000))
        values = pool[torch.randint(len(pool), (n_steps, n_rows, n_columns), generator=torch.Generator().manual_seed(seed))]
        if draw(st.booleans()) and n_steps: values = values[:1].expand(values.shape).clone()
        if first: values[:, 0] = torch.randint(0, draw(st.sampled_from([1, 2, 65])), (n_steps, n_columns)).float()
        return values

    def fill(history, kind, values):
        history.kind = kind
        history.fill([3*i for i in range(n_steps)], values)
        return history

    s = ActivationStats()
    s.history = fill(History(names, rows), "activations", table(len(rows), n_layers, True))
    if "gradients" in kinds: s.gradients = fill(History(names, rows), "gradients", table(len(rows), n_layers, True))
    if "updates" in kinds:
        params = [f"{name}.weight" for name in names]
        s.updates = fill(WeightHistory(params, ["update", "data"]), "updates", table(2, n_layers, False))
    if draw(st.booleans()): s.scaled = True
    return s


@settings(max_examples=400)
@given(records())
def test_any_record_can_be_diagnosed(s):
    d = diagnose(s)
    assert d.n_steps == len(s.steps) and d.n_layers == len(s.names)
    for f in d:
        assert f.what in FAULTS and f.sure in ("certain", "likely", "possible", "note") and (f.steps[0] <= f.steps[1]) == bool(s.steps)
        assert set(f.layers) <= {*s.names, *(s.updates.names if s.updates else ())}
    assert str(d) and d._repr_html_()
