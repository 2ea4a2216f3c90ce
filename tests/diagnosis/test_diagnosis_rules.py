"""Single rules of `diagnose`: what is a note, which finding explains another, what is known of several optimizers."""
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.diagnosis.evidence import Run
from hooklab.diagnosis.layer_faults import trend
from hooklab.findings.order import explains
from hooklab.stats.measure.loop_watch import CLOSE_STEPS, InputsAndOutputs
from hooklab.stats.measure.loss_kind import cross_entropy
from hooklab.stats.measure.step_watch import joined_row

pytestmark = pytest.mark.usefixtures("one_thread")


def batches(n, width=12, classes=3):
    "Two noisy directions decide the class."
    torch.manual_seed(0)
    ways = torch.randn(width, classes)
    for _ in range(n):
        x = torch.randn(32, width)
        yield x, (x@ways).argmax(1)


def said(model, optimizers, steps=60, clear=None, loss_of=F.cross_entropy):
    "What is said of a run in which the gradients of these optimizers are cleared: of all, if nothing is said."
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizers) as s:
        for x, y in batches(steps):
            for optimizer in optimizers if clear is None else clear: optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            for optimizer in optimizers: optimizer.step()
            s.step(loss)
    return {f.what: f for f in hl.diagnose(s)}


def test_a_bias_before_a_normalization_is_a_note():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    nn.init.ones_(model[0].bias)
    found = said(model, [torch.optim.SGD(model.parameters(), .05)])
    assert found["not trained"].sure == "note" and found["not trained"].layers == ["0.bias"]


def test_a_layer_that_rests_as_a_whole_is_certain():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))
    for p in model[0].parameters(): p.register_hook(torch.zeros_like)
    found = said(model, [torch.optim.SGD(model.parameters(), .05)])
    assert found["not trained"].sure == "certain" and found["not trained"].layers == ["0.weight", "0.bias"]


@pytest.mark.parametrize("forgotten", [0, 1])
def test_one_of_two_optimizers_is_never_cleared(forgotten):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizers = [torch.optim.SGD(model[0].parameters(), 1e-3), torch.optim.SGD(model[2].parameters(), 1e-3)]
    found = said(model, optimizers, clear=[optimizers[1 - forgotten]])
    assert found["no zero_grad"].sure == "certain"
    assert "no zero_grad" not in said(model, optimizers)


def test_what_several_optimizers_have_seen():
    row = {"updates": 1, "rate": .1, "kept": float("nan"), "no_gradients": 0.}
    found = joined_row(row, {"updates": 1, "rate": .01, "kept": 1., "no_gradients": 1.})
    assert {name: round(float(x), 6) for name, x in found.items()} == {
        "updates": 2, "rate": .1, "kept": 1, "no_gradients": 0}


@pytest.mark.parametrize("learns", [True, False])
def test_a_frozen_part_is_a_note_where_something_is_learned(learns):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 3))
    model[0].requires_grad_(False)
    if not learns: nn.init.normal_(model[0].weight, std=1e-6)
    found = said(model, [torch.optim.Adam(model.parameters(), 5e-3)])
    assert found["frozen part"].sure == ("note" if learns else "possible")
    assert learns or found["loss does not fall"].follows


def gradients_of(loss_of, classes, n=64, scale=1.):
    torch.manual_seed(0)
    o, y = (scale*torch.randn(n, classes)).requires_grad_(True), torch.randint(0, classes, (n,))
    loss = loss_of(o, y)
    loss.backward()
    return o.detach().double(), o.grad.double(), loss.item()


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_sign_of_a_cross_entropy(classes, sign, weighted):
    weight = torch.linspace(1, 3, classes) if weighted else None
    o, g, _ = gradients_of(lambda o, y: sign*F.cross_entropy(o, y, weight=weight), classes)
    assert cross_entropy(o, g).sign == sign


def test_rows_that_are_learned_count_in_the_loss():
    "Confident rows have hardly a gradient, and rows that are left out have none."
    torch.manual_seed(0)
    y = torch.randint(0, 4, (40,))
    o = torch.randn(40, 4)
    o[:30] += 12*F.one_hot(y[:30], 4)
    o.requires_grad_(True)
    loss = F.cross_entropy(o[:35], y[:35])
    loss.backward()
    kind = cross_entropy(o.detach().double(), o.grad.double())
    assert abs(kind.loss - loss.item()) < 1e-3 and sum(kind.labels) == 35


@pytest.mark.parametrize("n", range(CLOSE_STEPS, 80))
def test_a_short_run_is_looked_at_in_its_last_third(n):
    looks = InputsAndOutputs()
    assert sum(looks.due(step) for step in range(n) if step >= (n - 1)*2/3) >= (2 if n < 69 else 1)


def test_nan_does_not_explain_large_numbers():
    from hooklab.findings.found import Finding
    def finding(what, sure): return Finding(what, sure, "", steps=(0, 9))
    nan, large = finding("NaN or Inf", "certain"), finding("activations explode", "likely")
    assert explains(large, nan) and not explains(nan, large)


def test_a_trend_is_steady_in_both_directions_and_of_what_is_known():
    "Five layers of which two pairs have changed places are just in order: their ranks correlate by .8."
    powers = [[0, 1, 3, 2, 4], [1, 0, 3, 2, 4], [4, 2, 3, 0, 1], [2, 0, 3, 1, 4], [0, 0, 0, 0, 0]]
    sizes = 10.**torch.tensor(powers).T.double()
    sizes[2, 4] = torch.nan
    found = trend(sizes)
    assert found.tolist() == pytest.approx([4, 3, -3, 0, 0])
    sizes[:2] = torch.nan  # three are too few
    assert trend(sizes).isnan().all() and trend(sizes[:3]).isnan().all()
    assert trend(sizes[:, :0]).shape == (0,) and trend(sizes[:0]).shape == (5,)


@pytest.mark.parametrize("loss_of, kind", [(F.l1_loss, "absolute error"), (F.mse_loss, "squared error")])
def test_a_sigmoid_with_targets_of_0_and_1_fits_a_distance(loss_of, kind):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 8), nn.Sigmoid(), nn.Linear(8, 1), nn.Sigmoid())
    with hl.ActivationStats.for_diagnosis().on(model, optimizer=(sgd := torch.optim.SGD(model.parameters(), .01))) as s:
        for x, y in batches(60):
            loss = loss_of(model(x), (y == 1).float()[:, None])
            loss.backward()
            sgd.step()
            sgd.zero_grad()
            s.step(loss)
    found = hl.diagnose(s)
    assert "activation before the loss" not in found, f"{found!r}"
    assert {look.made_by.kind for look in Run(s).outputs_seen} == {kind}
    assert "bce" not in repr(found)
