"""Two recorded runs part where one was changed, rounding is no difference, and what cannot be compared is said."""
import warnings
from copy import deepcopy
from functools import cache
from itertools import product

import matplotlib.pyplot as plt
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.stats.records.recorded import Records
from hooklab.stats.runs.comparing_runs import compare_runs
from support.runs import Transformer, adam, cnn, mlp, sgd

pytestmark = pytest.mark.usefixtures("one_thread")
STEPS, AT = 20, 9  # of a run; where it is changed


@cache
def data():
    "Images and labels that can be learned, without a dataset to read."
    numbers = torch.Generator().manual_seed(7)
    y = torch.randint(10, (512,), generator=numbers)
    return torch.randn(10, 1, 8, 8, generator=numbers)[y] + torch.randn(512, 1, 8, 8, generator=numbers), y


def transformer():
    model = Transformer(16, 2)
    for m in model.modules():
        if isinstance(m, nn.Dropout): m.p = 0.
        if isinstance(m, nn.MultiheadAttention): m.dropout = 0.
    return model


def conv_with_bias():
    "Its biases are followed by norms: their gradients are zero but for rounding."
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Flatten(), nn.Linear(8, 10))


NETS = {  # how it is made, its optimizer, its learning rate
    "mlp": (lambda: mlp(64, 32, 32, 10), sgd, .05),
    "cnn": (cnn, adam, 2e-3),
    "conv with bias": (conv_with_bias, adam, 2e-3),
    "transformer": (transformer, adam, 2e-3),
}


def run(net="mlp", seed=0, change="", steps=STEPS, dtype=torch.float32, every=1, grads=True, updates=True):
    make, optimizer, lr = NETS[net]
    torch.manual_seed(seed)
    model = make()
    layer = [m for m in model.modules() if isinstance(m, nn.Linear)][-2 if net in ("mlp", "transformer") else -1]
    if change == "weights": nn.init.normal_(layer.weight, std=.1)
    if change == "dropout": hl.edit_output(layer, lambda m, i, o: F.dropout(o, .2))
    if change == "rate from the start": lr *= 1.01
    model = model.to(dtype)
    opt, order = optimizer(model.parameters(), lr=lr), torch.Generator().manual_seed(seed)
    x, y = data()
    with hl.ActivationStats(grads=grads, every=every).on(model, optimizer=opt if updates else None) as s:
        for step in range(steps):
            chosen = torch.randint(len(x), (64,), generator=order)
            late = step >= AT
            if change == "other order": chosen = chosen.flip(0)
            if change == "other data" and late: chosen = (chosen + 1) % len(x)
            if change == "smaller batch" and late: chosen = chosen[:32]
            if change == "rate" and late: opt.param_groups[0]["lr"] = lr/2
            if change == "decay" and late: opt.param_groups[0]["weight_decay"] = .1
            if change == "frozen" and late: layer.requires_grad_(False)
            if change == "NaN" and step == AT: nn.init.constant_(layer.bias, torch.nan)
            smoothing = .1 if change == "loss" and late else 0.
            loss = F.cross_entropy(model(x[chosen].to(dtype)), y[chosen], label_smoothing=smoothing)
            opt.zero_grad()
            loss.backward()
            if change == "clipped" and late: nn.utils.clip_grad_norm_(model.parameters(), .1)
            opt.step()
            s.step()
    s.layer = next(name for name, m in model.named_modules() if m is layer)
    return s


reference = cache(run)


# Rounding

@pytest.mark.parametrize("net", NETS)
def test_another_order_of_summation_is_no_difference(net):
    c = compare_runs(reference(net), run(net, change="other order"))
    assert c.same and c.began_equal and c.first is None and any(row.kind == "noise" for row in c.rows), c


@pytest.mark.parametrize("net", NETS)
def test_precision_is_no_difference(net):
    c = compare_runs(reference(net), run(net, dtype=torch.float64))
    assert c.same and "no more than rounding" in str(c), c


@pytest.mark.slow
def test_threads_are_no_difference():
    torch.set_num_threads(2)
    try: candidate = run("cnn", steps=10)
    finally: torch.set_num_threads(1)
    assert compare_runs(reference("cnn"), candidate).same


def test_the_same_run_is_equal():
    c = compare_runs(reference("mlp"), run("mlp"))
    assert c.same and {row.kind for row in c.rows} == {"equal"} and "equal bit for bit" in c.verdict


def test_a_bias_before_a_norm_has_no_effect():
    c = compare_runs(reference("conv with bias"), run("conv with bias", dtype=torch.float64))
    updates = [row for row in c.rows if row.what == "update"]
    without_effect = {(row.layer, row.number) for row in updates if row.kind == "no effect"}
    assert c.same and without_effect <= {("0", "length of bias"), ("3", "length of bias")}
    assert max(row.error for row in updates) > .01


# Changes

FAULTS = {  # the first step that differs, in what, and a word of the verdict
    "weights": (0, "parameter", "initialized or loaded"),
    "dropout": (0, "output", "dropout"),
    "rate from the start": (0, "update", "learning rate"),
    "other data": (AT, "output", "data"),
    "smaller batch": (AT, "output", "batch size"),
    "rate": (AT, "update", "learning rate"),
    "decay": (AT, "update", "optimizer"),
    "loss": (AT, "gradient", "look at the loss"),
    "frozen": (AT, "update", "frozen"),
    "NaN": (AT, "output", ""),
}
QUICK = [*product(["mlp"], FAULTS), ("transformer", "frozen"), ("transformer", "loss")]
ALL = [*product(["mlp", "transformer"], FAULTS), *product(["cnn"], ["rate", "loss", "other data"])]
WAYS = [pytest.param(*way, marks=[] if way in QUICK else pytest.mark.slow) for way in ALL]


@pytest.mark.parametrize("net, change", WAYS)
def test_a_change_is_found_where_it_is(net, change):
    step, what, hint = FAULTS[change]
    candidate = run(net, change=change)
    c = compare_runs(reference(net), candidate)
    assert not c.same and (c.first.step, c.first.what) == (step, what), c
    assert hint in c.verdict and c.first.error > c.first.noise and c.first in c.rows and c.first.kind == "fault"
    assert c.began_equal == (change != "weights")
    if change in ("weights", "dropout", "frozen"): assert c.first.layer == candidate.layer


@pytest.mark.parametrize("seed", [0, 1])
def test_a_change_on_top_of_rounding_is_found(seed):
    c = compare_runs(reference("mlp", seed), run("mlp", seed, "rate", dtype=torch.float64))
    assert (c.first.step, c.first.what) == (AT, "update"), c


def test_clipping_is_found():
    c = compare_runs(reference("mlp"), run("mlp", change="clipped"))
    assert (c.first.step, c.first.what) == (AT, "update") and "clipping" in c.verdict, c


def test_another_seed_differs_from_the_start():
    c = compare_runs(reference("mlp"), run("mlp", 1))
    assert not c.same and not c.began_equal and c.first.step == 0 and "seed" in c.verdict


def test_with_less_recorded_less_is_said():
    little = {"grads": False, "updates": False}
    a, b = run(**little), run(change="rate", **little)
    c = compare_runs(a, b)
    assert c.first.what == "output" and c.first.step == AT + 1 and c.began_equal
    c = compare_runs(run(grads=False), run(change="loss", grads=False))
    assert (c.first.step, c.first.what) == (AT, "update") and "grads=True" in c.verdict


def test_steps_that_were_not_recorded():
    c = compare_runs(run(every=4), run(change="rate", every=2))
    assert c.steps == [0, 4, 8, 12, 16] and c.first.step == 12 and "between step 8 and step 12" in c.verdict


def test_half_precision_is_told():
    def half(reverse):
        torch.manual_seed(0)
        model, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)), torch.randn(64, 64)
        opt = torch.optim.SGD(model.parameters(), lr=.05)
        with hl.ActivationStats(grads=True).on(model, optimizer=opt) as s:
            for _ in range(5):
                given = x.flip(0) if reverse else x
                with torch.autocast("cpu", torch.bfloat16, enabled=reverse is not None):
                    loss = model(given).square().mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
                s.step()
        return s
    c = compare_runs(half(None), half(False))
    assert not c.same and c.began_equal and "half precision" in c.verdict
    assert compare_runs(half(None), half(False), others=[half(True)]).same


# Other runs

def test_other_seeds_are_noise():
    others = [reference("mlp", seed) for seed in (1, 2, 3)]
    assert compare_runs(reference("mlp"), reference("mlp", 4), others=others).same
    c = compare_runs(reference("mlp"), run("mlp", 4, "frozen"), others=others)
    assert not c.same and abs(c.first.step - AT) <= 1 and "other runs" in c.verdict, c


def test_runs_that_drift_are_noise():
    "A run that rounds more is not the same; with another one that does so, it is."
    def half(seed):
        s = deepcopy(reference("mlp"))
        numbers = torch.Generator().manual_seed(seed)
        for history in s.histories.values():
            tables, n = history.tables(), len(history.rows)
            noise = 1e-3*torch.randn(tables.shape, generator=numbers)
            rounded = torch.tensor([[n <= 2 or i in (1, 2)] for i in range(n)])  # which of the numbers
            history.fill(history.steps, tables*(1 + noise*rounded))
        return s

    candidate, other = half(0), half(1)
    assert not compare_runs(reference("mlp"), candidate).same
    assert compare_runs(reference("mlp"), candidate, others=[other]).same


# What is shown

def test_it_prints_a_verdict_and_a_table():
    c = compare_runs(reference("mlp"), run(change="rate"))
    first, _, titles, *rows = str(c).splitlines()
    assert first == c.verdict and titles.split()[:3] == ["step", "what", "layer"]
    assert rows[0].split()[:2] == [f"{AT}", "update"]
    assert "<table>" in c._repr_html_() and "&lt;" not in c._repr_html_()


def test_rows_are_for_pandas():
    pd = pytest.importorskip("pandas")
    c = compare_runs(reference("mlp"), run(change="rate"))
    columns = ["step", "layer", "what", "number", "a", "b", "error", "noise", "kind", "estimated"]
    assert [*pd.DataFrame(c.rows).columns] == columns


@pytest.mark.parametrize("style", ["default", pytest.param("dark_background", marks=pytest.mark.slow)])
@pytest.mark.parametrize("change", [
    "rate", "NaN", *(pytest.param(change, marks=pytest.mark.slow) for change in ("", "other order"))])
def test_it_draws(change, style):
    with plt.style.context(style):
        ax = compare_runs(reference("mlp"), run(change=change)).plot()
        assert ax.get_xlabel() == "step" and ax.get_ylabel() and ax.lines
        ax.figure.canvas.draw()
        plt.close(ax.figure)


def test_saved_runs(tmp_path):
    a, b = tmp_path/"a.safetensors", tmp_path/"b.safetensors"
    reference("mlp").save(a)
    run(change="rate").save(b)
    assert str(compare_runs(a, str(b))) == str(compare_runs(reference("mlp"), run(change="rate")))


# What cannot be compared

def test_layers_without_a_partner_are_said():
    b = deepcopy(reference("mlp"))
    for history in b.histories.values(): history.names = [name.replace("5", "last") for name in history.names]
    c = compare_runs(reference("mlp"), b)
    assert c.same and "Only a has the layers 5." in c.verdict and "last" in c.verdict
    assert {row.kind for row in c.rows if row.layer == "5"} == {"only in a"}


def test_nan_in_both_is_no_difference():
    a, b = run(change="NaN"), run(change="NaN")
    assert compare_runs(a, b).same


def test_what_cannot_be_compared_is_said():
    a = reference("mlp")
    with pytest.raises(TypeError, match="b is a list"): compare_runs(a, [1, 2])
    with pytest.raises(ValueError, match="b has nothing to compare"): compare_runs(a, hl.ActivationStats())
    with pytest.raises(ValueError, match="no layer names in common"): compare_runs(a, reference("transformer"))
    updates, gradients = Records({"updates": a.updates}), Records({"gradients": a.gradients})
    with pytest.raises(ValueError, match="the runs recorded different things"): compare_runs(updates, gradients)
    b = deepcopy(a)
    for history in b.histories.values(): history.steps = [step + 100 for step in history.steps]
    with pytest.raises(ValueError, match="no step was recorded in all runs"): compare_runs(a, b)
    with pytest.raises(FileNotFoundError): compare_runs(a, "missing.safetensors")


def test_a_hook_of_your_own_is_refused():
    model = nn.Sequential(nn.Linear(2, 2))
    own = hl.ActivationStats(hook=lambda m, i, o: o.mean().item())
    with warnings.catch_warnings(action="ignore"), own.on(model) as s:
        model(torch.ones(1, 2))
        s.step()
    with pytest.raises(TypeError, match="custom hook"): compare_runs(s, s)
