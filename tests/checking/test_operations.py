"""preflight looks at single operations of a pass: their shapes, what made their input, which line asked for them."""
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hooklab as hl

pytestmark = pytest.mark.usefixtures("one_thread")


def data(n=32):
    torch.manual_seed(1)
    return torch.randn(n, 20), torch.randn(n)


def network(n_out=1, last=None):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, n_out), last or nn.Identity())


def found_in(call, what, model=None, batch=None):
    found = hl.preflight(model or network(), None, batch or data(), call=call, overfit=False)
    return [(f.sure, f.evidence) for f in found if f.what == what]


# A column that meets a row

def gathered(model, batch):  # as the value of an action, and what it has earned
    x, y = batch
    value = model(x).gather(1, torch.zeros(len(x), 1, dtype=torch.long))
    return (value - y).pow(2).mean()


def weighed(model, batch):
    x, y = batch
    return (model(x)*y).mean()


@pytest.mark.parametrize("call", [gathered, weighed], ids=lambda call: call.__name__)
def test_a_column_meets_a_row(call):
    (sure, said), *others = found_in(call, "labels broadcast")
    assert sure in ("certain", "likely") and not others and "(16, 1) and (16,)" in said
    assert "16 x 16 results instead of 16" in said
    assert ("value - y" if call is gathered else "model(x)*y") in said


def ranks(model, batch):
    score = model(batch[0])[:, 0]
    return F.relu(1 - (score[:, None] - score)*(batch[1][:, None] - batch[1]).sign()).mean()


def apart(model, batch):  # the squares of distances between all samples
    x = model(batch[0])
    squares = x.square().sum(1, keepdim=True) + x.square().sum(1) - 2*x @ x.T
    return (squares - 1).square().mean()


def columns(model, batch): return (model(batch[0]) - batch[1][:, None]).square().mean()
def centered(model, batch): return (model(batch[0]) - batch[0].mean(1, keepdim=True)).square().mean()


@pytest.mark.parametrize("call", [ranks, apart, columns, centered], ids=lambda call: call.__name__)
def test_all_pairs_on_purpose_are_no_square(call): assert not found_in(call, "labels broadcast")


# Two activations in a row

class Then(nn.Module):
    "Applies some functions to what a network returns."
    def __init__(self, *functions):
        super().__init__()
        self.net, self.functions = network(4), functions

    def forward(self, x):
        x = self.net(x)
        for f in self.functions: x = f(x)
        return x


def softmax(x): return x.softmax(1)
def tempered(x): return (x/2).softmax(1)
def chosen(model, batch): return -model(batch[0])[:, 0].clamp(min=1e-6).log().mean()


@pytest.mark.parametrize(("functions", "said"), [
    ((torch.relu, softmax), "A softmax (`def softmax(x): return x.softmax(1)`) gets the output of ReLU"),
    ((torch.relu, tempered), "gets the output of ReLU"), ((softmax, softmax), "gets the output of softmax"),
    ((torch.relu, torch.sigmoid), "A sigmoid (`for f in self.functions: x = f(x)`) gets the output of ReLU"),
    ((torch.sigmoid, torch.sigmoid), "gets the output of sigmoid")], ids=lambda x: "" if isinstance(x, str) else None)
def test_two_activations_in_a_row(functions, said):
    (sure, evidence), = found_in(chosen, "activation before the loss", Then(*functions))
    assert sure == "likely" and said in evidence


@pytest.mark.parametrize("functions", [(softmax,), (torch.tanh, softmax), (F.leaky_relu, softmax),
                                       (lambda x: x.log_softmax(1), torch.exp), (lambda x: x.log_softmax(1), softmax),
                                       (torch.relu, lambda x: 1 + x.sum(1, keepdim=True)*torch.ones(4), softmax)])
def test_activations_that_go_together(functions):
    assert not found_in(chosen, "activation before the loss", Then(*functions))


# A term that nothing changes

def distilled(of):
    def call(model, batch):
        with torch.no_grad(): large = 2*batch[0][:, :4]
        out = model(batch[0])
        soft = F.kl_div((large if of == "itself" else out).log_softmax(1), large.softmax(1), reduction="batchmean")
        logged = F.mse_loss(out.detach(), large)  # in no loss
        return .9*soft + .1*F.cross_entropy(out, large.argmax(1)) + 0*logged.item()
    return call


def test_a_term_that_compares_the_teacher_with_itself():
    (sure, said), = found_in(distilled("itself"), "term without gradient", network(4))
    assert sure == "likely" and said.startswith("kl_div (`soft = F.kl_div(")
    assert not found_in(distilled("student"), "term without gradient", network(4))


def test_a_loss_that_only_weighs_another_is_no_term():
    def call(model, batch):
        out = model(batch[0])[:, 0]
        return ((out - batch[1]).square()*F.mse_loss(out.detach(), batch[1])).mean()
    assert "likely" not in [sure for sure, _ in found_in(call, "term without gradient")]


# Arguments that are swapped

def by_hand(logits, labels): return -(labels*logits.log_softmax(1)).sum(1).mean()


@pytest.mark.parametrize("loss", [by_hand, F.cross_entropy], ids=["by hand", "of torch"])
def test_labels_in_the_place_of_logits(loss):
    def call(swapped):
        def compared(model, batch):
            both = model(batch[0]), torch.eye(4)[torch.arange(len(batch[0])) % 4]
            return loss(*(both[::-1] if swapped else both))
        return compared
    (sure, said), = found_in(call(True), "loss takes another form", network(4))
    assert sure == "likely" and said.endswith("to be swapped.")
    assert not found_in(call(False), "loss takes another form", network(4))


# A softmax over one number, or over samples

class Weighted(nn.Module):
    "The weighted sum of places."
    def __init__(self, dim):
        super().__init__()
        torch.manual_seed(0)
        self.score, self.last, self.dim = nn.Linear(5, 1), nn.Linear(5, 1), dim

    def forward(self, x):
        x = x.unflatten(1, (4, 5))
        return self.last((self.score(x).softmax(self.dim)*x).sum(1))


def error(model, batch): return F.mse_loss(model(batch[0])[:, 0], batch[1])


def test_a_softmax_over_one_number():
    (sure, said), = found_in(error, "wrong axis", Weighted(2))
    assert sure == "likely" and "dimension 2 of 16×4×1, which has size 1" in said
    assert not found_in(error, "wrong axis", Weighted(1))


def normed(dim):
    def call(model, batch):
        return -(model(batch[0]).softmax(dim)*F.one_hot((batch[1] > 0).long(), 4)).sum(1).mean()
    return call


def contrasted(model, batch):
    out = model(batch[0])
    return F.cross_entropy(out @ out.T, torch.arange(len(out))) - (out @ out.T).softmax(0).diagonal().mean()


def test_a_softmax_of_the_loss_goes_over_samples():
    (sure, said), = found_in(normed(0), "softmax over samples", network(4))
    assert sure == "likely" and "dimension 0 of 16×4, which has size 16 with 16 samples and 12 with 12." in said
    assert not found_in(normed(1), "softmax over samples", network(4))
    assert not found_in(contrasted, "softmax over samples", network(4))


def test_a_loss_that_makes_its_own_data():
    def call(relu):
        def played(model, _):
            scores = model(torch.randn(16, 20))
            return -(scores.relu() if relu else scores).softmax(1)[:, 0].log().mean()
        return played
    found = hl.preflight(network(4), None, None, call=call(True), overfit=False)
    assert [f.what for f in found] == ["activation before the loss"]
    assert not hl.preflight(network(4), None, [None, None], call=call(False), overfit=False)
    with pytest.raises(TypeError): hl.preflight(network(4), F.mse_loss, None)


# A target that is trained

def of_next(stays, best=True):
    def call(model, batch):
        x, y = batch
        with torch.set_grad_enabled(torch.is_grad_enabled() and not stays): then = model(x.roll(1, 0))
        then = then.max(1).values if best else then[:, 0]
        return F.smooth_l1_loss(model(x).gather(1, torch.zeros(len(x), 1, dtype=torch.long))[:, 0], y + .9*then)
    return call


def test_a_target_that_is_trained():
    (sure, said), = found_in(of_next(False), "gradient into the target", network(4))
    assert sure == "likely" and "as with the value of the next state" in said
    (sure, _), = found_in(of_next(False, best=False), "gradient into the target", network(4))
    assert sure == "note"
    assert not found_in(of_next(True), "gradient into the target", network(4))


# Similarities as logits

def matched(temperature):
    def call(model, batch):
        one, other = (F.normalize(model(x)) for x in (batch[0], 1.1*batch[0]))
        return F.cross_entropy(one @ other.T/temperature, torch.arange(len(one)))
    return call


def test_similarities_without_a_temperature():
    (sure, said), = found_in(matched(1), "loss takes another form", network(4))
    assert sure == "likely"
    assert "from -1 to 1: with 16 of them, even a perfect answer has a loss of 1.1, and a guess 2.8" in said
    (_, said), = found_in(matched(2), "loss takes another form", network(4))
    assert "from -0.5 to 0.5" in said
    assert not found_in(matched(.07), "loss takes another form", network(4))
