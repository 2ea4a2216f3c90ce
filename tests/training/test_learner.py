"""Learner: events in fastai's order, what is recorded, and that a fit leaves nothing behind, however it ends."""
import copy
import math
import pickle
import random
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from hooklab.hooks.attached import hooks_on
from hooklab.training import callback
from hooklab.training.callback import EVENTS, Callback, HookCallback
from hooklab.training.data import DataLoaders, synth_data
from hooklab.training.learner import Learner, RegModel, synth_learner
from hooklab.training.progress import Recorder
from support.nets import Raises

torch.set_num_threads(1)
parts = "Backward", "Step", "Batch", "Train", "Valid", "Epoch", "Fit"


def cancel(part): return getattr(callback, f"Cancel{part}Exception")


@pytest.fixture(autouse=True)
def seed(): torch.manual_seed(0)


@pytest.fixture
def quiet(): return partial(synth_learner, n_trn=3, n_val=2, quiet=True, device="cpu")


class Listener(Callback):
    "Writes down all events, with whether they belong to training."
    def __init__(self, order=0): self.order, self.heard = order, []
    def __call__(self, event):
        self.heard.append(event)
        super().__call__(event)


one_batch = "before_batch after_pred after_loss before_backward after_backward before_step after_step after_batch".split()
one_validation_batch = "before_batch after_pred after_loss after_batch".split()
one_epoch = ["before_epoch", "before_train", *one_batch*2, "after_train", "before_validate", *one_validation_batch, "after_validate", "after_epoch"]


def test_events_come_in_order():
    listener = Listener()
    synth_learner(n_trn=2, n_val=1, quiet=True, cbs=listener).fit(2)
    assert listener.heard == ["after_create", "before_fit", *one_epoch*2, "after_fit"]


@pytest.mark.parametrize("part", parts)
def test_a_canceled_part_ends_and_the_loop_goes_on(quiet, part):
    name = "validate" if part == "Valid" else part.lower()
    listener = Listener(order=200)
    quiet(cbs=listener).fit(2, cbs=Raises(f"before_{name}", cancel(part)(), order=100))
    heard = listener.heard
    assert heard.count(f"after_cancel_{name}") == 1 and heard.count("after_fit") == 1
    assert heard[heard.index(f"after_cancel_{name}") + 1] == f"after_{name}"
    assert heard.count("after_epoch") == (0 if part == "Fit" else 2)


@pytest.mark.parametrize("part", parts)
@pytest.mark.parametrize("event", [e for e in EVENTS if "cancel" not in e and e != "after_create"])
def test_canceling_anywhere_is_as_in_the_nested_parts(quiet, event, part):
    "An exception that no part around the event knows comes out; all others are dealt with. Nothing is left in any case."
    learn = quiet(cbs=HookCallback(hook=lambda m, i, o: None))
    learn.model.eval()
    try: learn.fit(1, cbs=Raises(event, cancel(part)(), order=100))
    except cancel(part): pass
    assert not hooks_on(learn.model) and not learn.model.training and not learn.training
    learn.fit(1)
    assert len(learn.recorder.rows) == 1


def test_callbacks_are_called_by_order_and_those_of_the_same_order_as_they_came():
    called = []
    def noting(name, order):
        cb = Callback()
        cb.order, cb.before_fit = order, lambda: called.append(name)
        return cb
    synth_learner(n_trn=1, quiet=True, cbs=[noting("late", 9), noting("a", 0), noting("b", 0), noting("early", -99)]).fit(1)
    assert called == ["early", "a", "b", "late"]


@pytest.mark.parametrize("name, known_as", [
    ("ActivationStats", "activation_stats"), ("HTTPLogger", "http_logger"), ("GANModule", "gan_module"), ("TstCallback", "tst"),
    ("LRFinder", "lr_finder"), ("My2Stats", "my2_stats"), ("CallbackList", "callback_list"), ("Callback", "callback")])
def test_names_are_those_of_fastai(name, known_as):
    assert type(name, (Callback,), {})().name == known_as


def test_callbacks_are_found_by_name(quiet):
    learn = quiet(cbs=Listener)
    assert learn.listener in learn.cbs and learn.listener.learn is learn
    learn.remove_cb(Listener)
    assert not hasattr(learn, "listener") and not any(isinstance(cb, Listener) for cb in learn.cbs)


def test_a_callback_cannot_take_the_name_of_something_else(quiet):
    class Model(Callback): pass
    with pytest.raises(ValueError, match="model already; rename Model"): quiet(cbs=Model)
    class Fit(Callback): pass
    with pytest.raises(ValueError, match="rename Fit"): quiet().fit(1, cbs=Fit)


def test_callbacks_for_one_fit(quiet):
    learn, stays = quiet(), Listener()
    learn.add_cb(stays)
    with learn.added_cbs([Recorder, stays]): assert len(learn.cbs) == 4
    assert stays in learn.cbs and stays.learn is learn and learn.listener is stays and len(learn.cbs) == 3
    with pytest.raises(AttributeError), learn.added_cbs([Raises("after_fit", ValueError()), 7]): pass
    assert len(learn.cbs) == 3
    learn.fit(1, cbs=stays)
    assert stays in learn.cbs and stays.heard.count("before_fit") == 1


def test_a_callback_moves_to_the_learner_that_it_is_given_to(quiet):
    cb = Listener()
    first, second = quiet(cbs=cb), quiet(cbs=cb)
    assert cb not in first.cbs and cb.learn is second and not hasattr(first, "listener")


def test_two_callbacks_of_a_class_and_one_goes(quiet):
    first, second = Listener(), Listener()
    learn = quiet(cbs=[first, second])
    learn.remove_cb(first)
    assert learn.listener is second and second in learn.cbs


def test_a_callback_sees_the_learner_and_says_when_it_hides_something(quiet):
    class Looks(Callback):
        def after_loss(self):
            assert self.xb is self.learn.xb and self.y is self.yb[0] and self.x is self.xb[0]
            assert self.opt is self.learn.opt and self.dls is self.learn.dls and self.pred.shape == self.y.shape
            with pytest.warns(UserWarning, match="self.learn.pred"): self.pred = None
            assert self.learn.pred is not None
            del self.pred
    quiet(cbs=Looks).fit(1)
    with pytest.raises(AttributeError, match="no learner"): Looks().xb
    with pytest.raises(AttributeError): quiet(cbs=Looks).looks.nothing
    assert not hasattr(Looks(), "nothing")


def test_run_train_and_run_valid(quiet):
    class Counts(Callback):
        n = 0
        def after_batch(self): self.n += 1
    counts = [Counts(), Counts(), Counts(), Counts()]
    counts[1].run_train, counts[2].run_valid, counts[3].run = False, False, False
    learn = quiet(cbs=counts)
    learn.fit(1)
    assert [c.n for c in counts] == [5, 2, 3, 0]
    learn.fit(1)
    assert counts[3].n == 5, "`run` is for one fit"


def test_counters(quiet):
    class Looks(Callback):
        seen = []
        def after_pred(self): self.seen.append((self.training, self.epoch, self.iter, self.n_iter, self.train_iter, round(self.pct_train, 3)))
    quiet(cbs=Looks).fit(2)
    assert Looks.seen == [(True, 0, 0, 3, 0, 0.), (True, 0, 1, 3, 1, .167), (True, 0, 2, 3, 2, .333), (False, 0, 0, 2, 3, .5), (False, 0, 1, 2, 3, .5),
                          (True, 1, 0, 3, 3, .5), (True, 1, 1, 3, 4, .667), (True, 1, 2, 3, 5, .833), (False, 1, 0, 2, 6, 1.), (False, 1, 1, 2, 6, 1.)]


def test_an_event_that_does_not_exist(quiet):
    with pytest.raises(ValueError, match="before_fit"): quiet()("before_fitting")


# However it ends

class BreaksInForward(nn.Module):
    "A model with layers in different modes, that may fail in the n-th pass."
    def __init__(self, error=None, n=0):
        super().__init__()
        self.lin, self.drop, self.bn = nn.Linear(1, 1), nn.Dropout(0.1), nn.BatchNorm1d(1)
        self.error, self.left = error, n
        self.bn.eval()

    def forward(self, x):
        self.left -= 1
        if self.error and self.left == -1: raise self.error
        return self.bn(self.drop(self.lin(x)))


class Loader:
    "Fails after some batches."
    def __init__(self, batches, error): self.batches, self.error = batches, error
    def __iter__(self):
        yield from self.batches
        raise self.error


errors = [RuntimeError("on purpose"), KeyboardInterrupt()]


def left(learn): return hooks_on(learn.model), [m.training for m in learn.model.modules()], learn.training, len(learn.cbs)


@pytest.mark.parametrize("error", errors, ids=repr)
@pytest.mark.parametrize("order", [-100, 0, 55, 100])
@pytest.mark.parametrize("event", [e for e in EVENTS if e != "after_create"])
def test_an_error_in_any_event_leaves_nothing(quiet, event, order, error):
    hooks, listener = HookCallback(hook=lambda m, i, o: None), Listener(order=1)
    learn = quiet(model=BreaksInForward(), cbs=[hooks, listener])
    before = left(learn)
    canceled = event.removeprefix("after_cancel_")
    others = []
    if canceled != event:  # something has to cancel first
        part = "Valid" if canceled == "validate" else canceled.capitalize()
        others.append(Raises(f"before_{canceled}", cancel(part)(), order=150))
    with pytest.raises(type(error)) as raised: learn.fit(2, cbs=[Raises(event, error, order=order), *others])
    assert raised.value is error
    assert left(learn) == before
    assert listener.heard.count("after_fit") == 1, "whatever happens, callbacks hear that the fit is over, and once"
    assert all(isinstance(loss, float) for loss in learn.recorder.losses)
    assert len(learn.recorder.rows) <= 2 and len(learn.recorder.table().splitlines()) == len(learn.recorder.rows) + bool(learn.recorder.rows)
    learn.fit(1)
    assert left(learn) == before and len(learn.recorder.losses) == 3 and len(learn.recorder.rows) == 1


@pytest.mark.parametrize("error", errors, ids=repr)
@pytest.mark.parametrize("n", [0, 1, 3, 4, 5])
def test_an_error_in_the_model_leaves_nothing(quiet, n, error):
    learn = quiet(model=BreaksInForward(error, n), cbs=HookCallback(hook=lambda m, i, o: None, include_paramless=True))
    before = left(learn)
    with pytest.raises(type(error)): learn.fit(2)
    assert left(learn) == before
    assert len(learn.recorder.losses) == min(n, 3) + (n == 5)*0 and len(learn.recorder.rows) == (n == 5)


@pytest.mark.parametrize("error", errors, ids=repr)
@pytest.mark.parametrize("where", ["train", "valid"])
def test_an_error_in_a_loader_leaves_nothing(quiet, where, error):
    batches = list(synth_data(n_trn=3).train)
    learn = quiet(data=DataLoaders(batches, batches)._replace(**{where: Loader(batches, error)}), cbs=HookCallback(hook=lambda m, i, o: None))
    before = left(learn)
    with pytest.raises(type(error)): learn.fit(1)
    assert left(learn) == before and len(learn.recorder.losses) == 3


@pytest.mark.parametrize("where", ["loss_func", "opt_func", "metric", "optimizer step"])
def test_an_error_elsewhere_leaves_nothing(quiet, where):
    def fails(*args, **kwargs): raise RuntimeError("on purpose")
    learn = quiet(model=BreaksInForward(), cbs=HookCallback(hook=lambda m, i, o: None))
    if where == "metric": learn.metrics = [fails]
    elif where == "optimizer step":
        class Stuck(torch.optim.SGD): step = fails
        learn.opt_func = Stuck
    else: setattr(learn, where, fails)
    before = left(learn)
    with pytest.raises(RuntimeError, match="on purpose"): learn.fit(1, cbs=Listener)
    assert left(learn) == before


def test_the_first_error_is_raised_and_tells_of_those_that_follow(quiet):
    a, b = Raises("after_fit", ValueError("first at the end")), Raises("after_fit", KeyError("second at the end"), order=1)
    listener = Listener(order=2)
    with pytest.raises(ZeroDivisionError) as raised: quiet(cbs=listener).fit(1, cbs=[a, b, Raises("after_loss", ZeroDivisionError())])
    assert "first at the end" in raised.value.__notes__[0] and "second at the end" in raised.value.__notes__[1]
    a.left = b.left = 0
    listener.heard.clear()
    with pytest.raises(ValueError) as raised: quiet(cbs=listener).fit(1, cbs=[a, b])
    assert "second at the end" in raised.value.__notes__[0] and listener.heard.count("after_fit") == 1


def test_the_batch_that_failed_can_be_looked_at(quiet):
    learn = quiet()
    with pytest.raises(RuntimeError): learn.fit(1, cbs=Raises("after_loss", RuntimeError(), n=1))
    assert len(learn.xb[0]) == len(learn.pred) == 16 and learn.loss.ndim == 0
    learn.fit(1)
    assert learn.xb == () and learn.pred is learn.loss is learn.loss_grad is None


# Training

def test_training_is_what_a_loop_by_hand_does():
    dls = synth_data()
    batches = [list(dls.train), list(dls.train)]
    model = RegModel()
    twin, losses = copy.deepcopy(model), []
    class Epochs:
        def __iter__(self): return iter(batches[learn.epoch])
    learn = Learner((Epochs(), dls.valid), model, F.mse_loss, partial(torch.optim.SGD, momentum=0.9), lr=0.03, quiet=True, device="cpu")
    learn.fit(2)
    opt = torch.optim.SGD(twin.parameters(), lr=0.03, momentum=0.9)
    for x, y in batches[0] + batches[1]:
        loss = F.mse_loss(twin(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        losses.append(loss.item())
    assert learn.recorder.losses == losses and learn.recorder.lrs == [0.03]*20
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), twin.parameters()))


def test_gradients_accumulate_when_a_callback_ends_the_batch_before_its_step():
    x, y = torch.randn(8, 1), torch.randn(8, 1)
    class Half(Callback):
        run_valid = False
        def after_loss(self): self.learn.loss_grad = self.loss_grad/2
        def before_step(self):
            if self.train_iter % 2 == 0: raise callback.CancelBatchException
    small, large = RegModel(), None
    large = copy.deepcopy(small)
    def learner(model, bs): return Learner(([*zip(x.split(bs), y.split(bs))], None), model, F.mse_loss, torch.optim.SGD, lr=0.1, quiet=True, device="cpu")
    learner(small, 4).fit(1, cbs=Half)
    learner(large, 8).fit(1)
    for p, q in zip(small.parameters(), large.parameters()): torch.testing.assert_close(p, q)


def test_learning_rates(quiet):
    learn = quiet(lr=0.5)
    learn.fit(1)
    learn.fit(1, lr=0.25)
    assert learn.recorder.lrs == [0.25]*3
    learn.fit(1)
    assert learn.recorder.lrs == [0.5]*3
    own = Learner(synth_data(n_trn=1), RegModel(), F.mse_loss, partial(torch.optim.SGD, lr=0.125), quiet=True)
    own.fit(1)
    assert own.recorder.lrs == [0.125]


def test_the_optimizer_goes_on_until_the_model_is_another_one(quiet):
    learn = quiet()
    learn.fit(1)
    opt = learn.opt
    learn.fit(1)
    assert learn.opt is opt
    learn.model = new = RegModel()
    before = new.a.clone()
    learn.fit(1)
    assert learn.opt is not opt and not torch.equal(new.a, before)


class Numbers(IterableDataset):
    "A stream that does not know its length."
    def __iter__(self): return ((torch.full((1,), float(i)), torch.full((1,), 2.*i)) for i in range(7))


@pytest.mark.parametrize("make", [
    lambda: [(torch.ones(2, 1), torch.ones(2, 1))]*3,
    lambda: DataLoader(TensorDataset(torch.ones(6, 1), torch.ones(6, 1)), 2),
    lambda: DataLoader(Numbers(), 3),
    lambda: range_of_batches()], ids=["list", "loader", "stream", "own class"])
def test_any_iterable_of_batches_will_do(make):
    learn = Learner((make(), make()), RegModel(), F.mse_loss, quiet=True)
    learn.fit(2)
    assert len(learn.recorder.losses) == 6 and len(learn.recorder.rows) == 2 and all(math.isfinite(v) for v in learn.recorder.rows[1].values())


class range_of_batches:
    def __iter__(self): return iter([(torch.ones(2, 1), torch.ones(2, 1))]*3)


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(2, 1)
    def forward(self, a, b, *, mask=None): return self.lin(torch.cat([a, b], 1)) if mask is None else self.lin(torch.cat([a*mask, b], 1))


a, b, y = torch.ones(4, 1), torch.zeros(4, 1), torch.ones(4, 1)


@pytest.mark.parametrize("batch, loss_func", [
    ((a, b, y), F.mse_loss),
    ([a, b, y], F.mse_loss),
    (({"a": a, "b": b, "mask": a}, y), F.mse_loss),
    ({"a": a, "b": b}, lambda pred, batch: F.mse_loss(pred, batch["a"]))], ids=["tuple", "list", "dict and target", "dict"])
def test_batches_with_several_inputs(batch, loss_func):
    learn = Learner(([batch]*2, [batch]), Two(), loss_func, quiet=True, metrics=lambda pred, _: pred.mean())
    learn.fit(2, lr=0.1)
    assert learn.recorder.losses[-1] < learn.recorder.losses[0] and len(learn.recorder.rows[0]) == 4
    assert str(learn.summary()).startswith("Two, input")


def test_batches_that_are_one_tensor():
    auto = nn.Linear(3, 3)
    x = torch.randn(4, 3)
    class Itself(Callback):
        def before_batch(self): self.learn.yb = self.xb
    learn = Learner(([x]*3, [x]), auto, F.mse_loss, quiet=True, cbs=Itself)
    learn.fit(1)
    assert len(learn.recorder.losses) == 3
    without = Learner(([x], [x]), auto, lambda pred: pred.square().mean(), quiet=True)
    without.fit(1)
    assert len(without.recorder.losses) == 1 and math.isnan(without.recorder.rows[0]["valid_loss"])


def test_n_inp_of_the_loaders_says_how_many_inputs_there_are():
    dls = type("Loaders", (), {"train": [(a, b)], "valid": None, "n_inp": 2})()
    learn = Learner(dls, Two(), lambda pred: pred.square().mean(), quiet=True)
    learn.fit(1)
    assert len(learn.recorder.losses) == 1


def test_batches_of_one_and_of_none():
    one, none = (torch.ones(1, 1), torch.ones(1, 1)), (torch.ones(0, 1), torch.ones(0, 1))
    learn = Learner(([one, none], [none]), RegModel(), F.mse_loss, quiet=True)
    learn.fit(1)
    assert math.isnan(learn.recorder.losses[1]) and math.isnan(learn.recorder.rows[0]["valid_loss"])


def test_empty_loaders():
    full = [(torch.ones(2, 1), torch.ones(2, 1))]
    with pytest.raises(ValueError, match="gave no batch"): Learner(([], full), RegModel(), F.mse_loss, quiet=True).fit(1)
    once = Learner((iter(full), None), RegModel(), F.mse_loss, quiet=True)
    with pytest.raises(ValueError, match="epoch 1.*only once"): once.fit(2)
    assert len(once.recorder.rows) == 1
    learn = Learner((full, []), RegModel(), F.mse_loss, quiet=True, metrics=F.l1_loss)
    learn.fit(1)
    assert math.isnan(learn.recorder.rows[0]["valid_loss"]) and math.isnan(learn.recorder.rows[0]["l1_loss"])
    with pytest.raises(ValueError, match="no validation data"): once.validate()


def test_a_loss_that_is_nan_is_recorded(capsys):
    learn = Learner(([(a, y)]*2, [(a, y)]), RegModel(), lambda pred, y: (pred - y).mean()*float("nan"), device="cpu")
    learn.fit(2)
    assert all(map(math.isnan, learn.recorder.losses)) and "nan" in capsys.readouterr().out


def test_fitting_no_epoch_does_nothing(quiet):
    learn = quiet()
    before = [p.clone() for p in learn.model.parameters()]
    learn.fit(0)
    assert learn.recorder.rows == learn.recorder.losses == [] and all(map(torch.equal, before, learn.model.parameters()))


def test_arguments_that_cannot_be():
    with pytest.raises(TypeError, match="torch.nn.Module"): Learner(synth_data(), lambda x: x, F.mse_loss)
    with pytest.raises(TypeError, match="pair"): Learner([1, 2], RegModel(), F.mse_loss)


# What is recorded

def test_means_are_over_samples_and_not_over_batches():
    x = torch.tensor([[1.], [2.], [6.]])
    batches = [(x[:2], x[:2]), (x[2:], x[2:])]
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    learn = Learner((batches, batches), model, F.l1_loss, torch.optim.SGD, lr=0., quiet=True, device="cpu",
                    metrics=[F.mse_loss, partial(F.l1_loss, reduction="none"), lambda pred, y: 1])
    learn.fit(1)
    row = learn.recorder.rows[0]
    assert row == {"epoch": 0, "train_loss": 3., "valid_loss": 3., "mse_loss": pytest.approx(41/3), "l1_loss": 3., "<lambda>": 1.}


def test_validation_leaves_no_trace(quiet):
    learn = quiet(metrics=F.l1_loss, model=BreaksInForward())
    learn.fit(1)
    rows, losses, modes = [*learn.recorder.rows], learn.recorder.losses, left(learn)
    state = copy.deepcopy(learn.model.state_dict())
    again = learn.validate()
    assert again == {name: rows[0][name] for name in ("valid_loss", "l1_loss")}
    assert learn.recorder.rows == rows and learn.recorder.losses == losses and left(learn) == modes
    assert all(torch.equal(v, state[k]) for k, v in learn.model.state_dict().items())
    learn.model.error, learn.model.left = KeyboardInterrupt(), 0
    with pytest.raises(KeyboardInterrupt): learn.validate()
    assert left(learn) == modes
    fresh = quiet()
    assert set(fresh.validate()) == {"valid_loss"} and not any(p.requires_grad and p.grad is not None for p in fresh.model.parameters())


def test_validation_in_the_middle_of_a_fit(quiet):
    class Often(Callback):
        order, run_valid = 100, False
        found = []
        def after_batch(self): self.found.append((self.learn.validate()["valid_loss"], self.learn.training, self.model.training))
    learn = quiet(cbs=Often, model=BreaksInForward())
    learn.fit(1)
    assert [found[1:] for found in Often.found] == [(True, True)]*3
    assert len(learn.recorder.rows) == 1 and len(learn.recorder.losses) == 3


def test_no_validation(quiet):
    learn = quiet(data=DataLoaders(synth_data(n_trn=2).train))
    learn.fit(2)
    assert [set(row) for row in learn.recorder.rows] == [{"epoch", "train_loss"}]*2


def test_canceled_batches_are_not_recorded(quiet):
    learn = quiet()
    learn.fit(1, cbs=Raises("before_batch", callback.CancelBatchException(), n=1, order=100))
    assert len(learn.recorder.losses) == 2


def test_table_and_quiet(capsys):
    synth_learner(n_trn=2, quiet=True).fit(1)
    assert capsys.readouterr() == ("", "")
    learn = synth_learner(n_trn=2)
    learn.fit(2)
    out, err = capsys.readouterr()
    assert out.rstrip("\n") == learn.recorder.table() and len(out.splitlines()) == 3 and err == ""
    assert out.split()[:3] == ["epoch", "train_loss", "valid_loss"]


def test_a_bar_where_somebody_looks(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    learn = synth_learner(n_trn=2)
    learn.fit(1)
    assert "epoch 0" in capsys.readouterr().err
    with pytest.raises(RuntimeError): learn.fit(1, cbs=Raises("after_loss", RuntimeError()))
    assert learn.progress.bar.disable, "closed"


# Summary

def test_summary_tells_and_changes_nothing(quiet):
    model = nn.Sequential(nn.Linear(1, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 1))
    model[1].eval()
    model[0].weight.requires_grad_(False)
    learn = quiet(model=model, cbs=Listener)
    state, rng, order, python = copy.deepcopy(model.state_dict()), torch.random.get_rng_state(), learn.dls.train.generator.get_state(), random.getstate()
    before = left(learn)
    told = learn.summary()
    assert left(learn) == before and learn.listener.heard == ["after_create"] and learn.opt is None
    assert torch.equal(rng, torch.random.get_rng_state()) and torch.equal(order, learn.dls.train.generator.get_state()) and python == random.getstate()
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    text = str(told)
    lines = text.splitlines()
    assert lines[0] == "Sequential, input 16×1" and lines[4].split() == ["0:", "Linear", "16×5", "10", "5", "partly", "frozen"]
    assert "26 parameters (104 B), 21 trainable, 5 frozen" in lines and "frozen layers: 0 (Linear)" in lines
    assert lines[-3:] == ["Optimizer: SGD", "Loss: mse_loss", "Callbacks: TrainEvalCallback, Recorder, Listener"]
    assert text == str(learn.summary())


def test_summary_of_a_model_that_fails_or_a_loader_that_is_used_up(quiet):
    learn = quiet(model=BreaksInForward(RuntimeError("on purpose")))
    before = left(learn)
    with pytest.raises(RuntimeError, match="on purpose"): learn.summary()
    assert left(learn) == before
    with pytest.raises(TypeError, match="only once"): quiet(data=(iter([(a, y)]), None)).summary()


def test_summary_names_layers_that_did_not_run(quiet, recwarn):
    class Skips(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(1, 1), nn.Linear(1, 1)
        def forward(self, x): return self.used(x)
    assert "not called: unused" in quiet(model=Skips()).summary().totals() and not recwarn.list


# Copies

def test_a_learner_can_be_copied_and_pickled(quiet):
    learn = quiet(cbs=Listener)
    learn.fit(1)
    for twin in copy.deepcopy(learn), pickle.loads(pickle.dumps(learn)):
        assert twin.listener.learn is twin and twin.recorder.losses == learn.recorder.losses
        twin.fit(1)
        assert len(twin.recorder.rows) == 1
    assert learn.listener.heard.count("before_fit") == 1


@pytest.mark.gpu
def test_model_and_batches_are_moved_to_the_gpu():
    learn = synth_learner(n_trn=3, quiet=True, metrics=F.l1_loss)
    where = []
    learn.fit(1, cbs=HookCallback(hook=lambda m, i, o: where.append((i[0].device.type, m.a.device.type))))
    assert set(where) == {("cpu", "cuda")}, "HookCallback shows tensors on the CPU, and the model is on the GPU"
    assert "cuda" in str(learn.device) and learn.summary() and learn.validate()
    synth_learner(n_trn=1, quiet=True, device="cpu").fit(1)


@pytest.mark.gpu
def test_a_step_does_not_wait_for_the_gpu():
    x, y = torch.randn(8, 1, device="cuda"), torch.randn(8, 1, device="cuda")
    class Strict(Callback):
        def before_batch(self): torch.cuda.set_sync_debug_mode("error")
        def after_batch(self): torch.cuda.set_sync_debug_mode("default")
        def clean_up(self): torch.cuda.set_sync_debug_mode("default")
    strict = Strict()
    strict.order = -50
    Learner(([(x, y)]*4, [(x, y)]), RegModel(), F.mse_loss, partial(torch.optim.SGD, lr=0.1), cbs=strict, metrics=F.l1_loss).fit(2)
