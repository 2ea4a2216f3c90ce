"""Our ActivationStats beside fastai's own in the same fit of fastai's Learner: the same numbers, and where not, which and why."""
import copy
import pickle
import warnings
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hooklab.hooks.attached import hooks_on
from hooklab.stats.activation_stats import ActivationStats
from hooklab.training.callback import Callback
from hooklab.training.data import digits, synth_data

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore:Using a non-full backward hook:FutureWarning", "ignore::DeprecationWarning",
                                                            "ignore:std\\(\\):UserWarning")]
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed(): torch.manual_seed(0)


def theirs(**options):
    "fastai's, under a name of its own, for a learner can have both."
    from fastai.callback.hook import ActivationStats as FastaiStats
    class Theirs(FastaiStats): pass
    return Theirs(**options)


def learner(model, data, cbs=(), loss=F.mse_loss):
    from fastai.data.core import DataLoaders
    from fastai.learner import Learner
    from fastai.optimizer import SGD
    learn = Learner(DataLoaders(*data), model, loss_func=loss, opt_func=partial(SGD, mom=0.9), lr=0.01, cbs=list(cbs))
    learn.logger = lambda *args: None
    return learn


def convnet():
    return nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(inplace=True),
                         nn.Flatten(), nn.Linear(144, 32), nn.Tanh(), nn.Linear(32, 10))


def linenet(): return nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 1))


def few_digits(bs=256): return digits(bs=bs)
def line(n_trn=11): return synth_data(n_trn=n_trn)


def side_by_side(model, data, loss, epochs=1, **options):
    ours, other = ActivationStats(**options), theirs(**options)
    learner(model, data, [ours, other], loss).fit(epochs)
    return ours, other


def same(ours, other):
    "All numbers of all layers in all rows."
    assert len(ours.stats) == len(other.stats) > 0
    for row, their_row in zip(ours.stats, other.stats):
        assert len(row) == len(their_row)
        for a, b in zip(row, their_row):
            if isinstance(b, list): b = b[0]  # of several tensors, ours is of the first
            for what in ("mean", "std", "near_zero"): assert a[what] == pytest.approx(b[what], rel=1e-5, abs=1e-5, nan_ok=True), what
            if "hist" in b: assert torch.equal(a["hist"], b["hist"])
            assert ("hist" in a) == ("hist" in b)


both_models = pytest.mark.parametrize("model, data, loss", [(convnet, few_digits, F.cross_entropy), (linenet, line, F.mse_loss)],
                                      ids=["images", "line"])


@both_models
@pytest.mark.parametrize("options", [{}, {"with_hist": True}, {"every": 1}, {"every": 4, "with_hist": True}, {"include_paramless": True, "with_hist": True},
                                     {"cpu": False}], ids=str)
def test_same_numbers(model, data, loss, options):
    same(*side_by_side(model(), data(), loss, epochs=2, **options))


@both_models
def test_same_numbers_of_chosen_layers(model, data, loss):
    m = model()
    same(*side_by_side(m, data(), loss, modules=[m[-1], m[0]], with_hist=True))


@both_models
def test_same_series_and_pictures(model, data, loss):
    ours, other = side_by_side(model(), data(), loss, with_hist=True)
    for i in range(len(ours.names)):
        for a, b in zip(ours.layer_stats(i), other.layer_stats(i), strict=True): assert list(a) == pytest.approx(list(b), rel=1e-5, abs=1e-5)
        assert torch.equal(ours.hist(i), other.hist(i))


@pytest.mark.parametrize("n_trn", [11, 12, 13])
def test_rows_of_every_fourth_batch(n_trn):
    ours, other = side_by_side(linenet(), line(n_trn), F.mse_loss, every=4)
    assert len(ours.stats) == len(other.stats) == -(-n_trn//4)


@both_models
@pytest.mark.parametrize("with_hist", [False, True])
def test_same_numbers_of_gradients(model, data, loss, with_hist):
    m = model()
    if model is convnet: m[4] = nn.ReLU()  # torch's old hooks, which fastai has, fail with a layer that works in place
    same(*side_by_side(m, data(), loss, is_forward=False, with_hist=with_hist))


class Reads(nn.Module):
    "An LSTM over the rows of an image."
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 10)

    def forward(self, x): return self.head(self.lstm(x[:, 0])[0][:, -1])


def test_lstm():
    "fastai has numbers of all three tensors, in a list, with which its own `layer_stats` fails; ours has those of the output."
    ours, other = side_by_side(Reads(), few_digits(), F.cross_entropy, with_hist=True)
    same(ours, other)
    assert isinstance(other.stats[0][0], list) and len(ours.layer_stats(0)[0]) == len(ours.stats) and ours.hist(0).shape[0] == 40
    with pytest.raises(TypeError): other.layer_stats(0)


class Diverges(nn.Sequential):
    def forward(self, x):
        y = super().forward(x)
        return y*float("nan") if self.training else y


def test_nan():
    "The first step makes NaN of every parameter that gets a gradient; those of a unit that the ReLU held back do not."
    ours, other = side_by_side(Diverges(*linenet()), line(), F.mse_loss, with_hist=True)
    same(ours, other)
    shares = ours.history.values("nan")
    assert torch.isnan(ours.stats_tensor[:, :, 1:]).all() and not shares[:, 0].any() and (shares[0, 1:] > 0).all() and (shares[1:, 1:] == 1).all()


def test_a_fit_again_begins_anew_and_keeps_nothing_but_the_records():
    learn = learner(linenet(), line(5), [ours := ActivationStats(), other := theirs()])
    for n in (1, 3):
        learn.fit(n)
        same(ours, other)
        assert len(ours.stats) == 5*n
    learn.remove_cb(other)
    learn.fit(1)
    assert not hooks_on(learn.model)


def test_remove_end():
    "With remove_end=False, fastai leaves one more copy in each fit; ours is one copy, and comes off with the callback."
    learn = learner(linenet(), line(5), [ours := ActivationStats(remove_end=False)])
    counts = []
    for _ in range(3):
        learn.fit(1)
        counts.append(len(hooks_on(learn.model)))
        assert len(ours.stats) == 5
    assert counts[0] == counts[1] == counts[2] > 0
    ours.remove()
    assert not hooks_on(learn.model)

    learn = learner(linenet(), line(5), [theirs(remove_end=False)])
    for n in (1, 2, 3):
        learn.fit(1)
        assert len(hooks_on(learn.model)) == 3*n


class Raises(Callback):
    order = 70
    def __init__(self, error, event): self.error, self.event, self.left = error, event, 3
    def __call__(self, event):
        if event == self.event:
            self.left -= 1
            if self.left == 0: raise self.error


@pytest.mark.parametrize("options", [{}, {"every": 2}, {"grads": True, "with_hist": True}], ids=str)
@pytest.mark.parametrize("event", ["before_batch", "after_pred", "after_backward", "after_batch"])
@pytest.mark.parametrize("error", [RuntimeError("on purpose"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_a_fit_that_fails_leaves_no_hook(options, event, error):
    learn = learner(linenet(), line(5), [ours := ActivationStats(**options), Raises(error, event)])
    with pytest.raises((RuntimeError, KeyboardInterrupt)): learn.fit(1)
    assert not hooks_on(learn.model) and len(ours.stats) == len(range(0, 3 if event == "after_batch" else 2, options.get("every", 1)))


def test_parameters_are_bit_identical_to_a_run_without():
    models = []
    for cbs in ([], [ActivationStats(with_hist=True, grads=True)]):
        torch.manual_seed(0)
        model = convnet()
        learner(model, few_digits(), cbs, F.cross_entropy).fit(2)
        models.append(model)
    for p, q in zip(*(m.parameters() for m in models), strict=True): assert torch.equal(p, q)


# A hook of one's own

def own_classes():
    from fastai.callback.hook import ActivationStats as FastaiStats
    def hook(self, m, i, o): return {"max": o.max().item(), "inputs": len(i), "shape": i[0].shape}
    return type("Own", (ActivationStats,), {"hook": hook}), type("Theirs", (FastaiStats,), {"hook": hook})


@pytest.mark.parametrize("options", [{}, {"every": 3}, {"cpu": False}, {"include_paramless": True}], ids=str)
def test_a_subclass_with_a_hook_is_obeyed_as_in_fastai(options):
    ours, other = (kind(**options) for kind in own_classes())
    learn = learner(linenet(), line(7), [ours, other])
    learn.fit(2)
    assert ours.stats == [list(row) for row in other.stats] and len(ours.stats) == -(-14//options.get("every", 1)) and not hooks_on(learn.model)


def test_a_hook_that_adds_to_that_of_the_class():
    from fastai.callback.hook import ActivationStats as FastaiStats
    made = []
    for base, name in ((ActivationStats, "Own"), (FastaiStats, "Theirs")):
        class Adds(base):
            def hook(self, m, i, o): return {**super().hook(m, i, o), "max": o.max().item()}
        made.append(type(name, (Adds,), {})(with_hist=True))
    learner(convnet(), few_digits(), made, F.cross_entropy).fit(1)
    same(*made)
    for a, b in zip(*(s.stats for s in made)): assert [g["max"] for g in a] == [g["max"] for g in b] and [list(g) for g in a] == [list(g) for g in b]
    ours, other = made
    for i in range(4):
        assert torch.equal(ours.hist(i), other.hist(i))
        for a, b in zip(ours.layer_stats(i), other.layer_stats(i), strict=True): assert list(a) == pytest.approx(list(b), rel=1e-5, abs=1e-5)


def test_a_function_as_a_hook():
    def f(m, i, o): return type(m).__name__, o.mean().item()
    ours, other = ActivationStats(hook=f), theirs(hook=f)
    learner(linenet(), line(4), [ours, other]).fit(1)
    assert ours.stats == [list(row) for row in other.stats]


@pytest.mark.parametrize("with_hist", [False, True])
@pytest.mark.parametrize("o", [torch.linspace(-1, 12, 60), torch.randn(3, 4, 5), torch.randn(8).half(), torch.tensor([float("nan"), 1.])], ids=range(4))
def test_the_hook_gives_what_that_of_fastai_gives(o, with_hist):
    ours, other = ActivationStats(with_hist).hook(None, None, o), theirs(with_hist=with_hist).hook(None, None, o)
    assert list(ours) == list(other)
    for what in ("mean", "std", "near_zero"): assert ours[what] == pytest.approx(other[what], rel=1e-5, abs=1e-6, nan_ok=True)
    if with_hist: assert torch.equal(ours["hist"], other["hist"])


class Largest(ActivationStats):
    def hook(self, m, i, o): return {"max": o.max().item()}


def silent(*args): pass  # can be pickled


@pytest.mark.parametrize("make", [ActivationStats, partial(ActivationStats, with_hist=True, grads=True, every=2), Largest], ids=["plain", "all", "own hook"])
def test_a_learner_that_was_exported_loads(make, tmp_path, monkeypatch):
    from fastai.learner import load_learner
    from fastai.test_utils import synth_learner
    monkeypatch.setattr(torch.utils.data.TensorDataset, "new_empty", lambda self: self, raising=False)  # asked for by export
    learn = synth_learner(n_trn=5, model=linenet(), cbs=[ours := make()])
    learn.logger, learn.path = silent, tmp_path
    for _ in range(2):  # before and after a fit
        rows = repr(ours.stats)
        learn.export("learner.pkl")
        with pytest.warns(UserWarning): loaded = load_learner(tmp_path/"learner.pkl")
        for twin in loaded, copy.deepcopy(learn), pickle.loads(pickle.dumps(learn)):
            name = ours.name
            assert repr(getattr(twin, name).stats) == rows and getattr(twin, name).learn is twin and not hooks_on(twin.model)
            twin.dls, twin.opt = learn.dls, None
            twin.fit(1)
            assert len(getattr(twin, name).stats) == len(range(0, 5, ours.every or 1)) and not hooks_on(twin.model)
        learn.fit(1)


# Where ours differs on purpose

class Sometimes(nn.Module):
    "Runs a layer in every other batch."
    def __init__(self):
        super().__init__()
        self.always, self.odd, self.n = nn.Linear(1, 1), nn.Linear(1, 1), 0

    def forward(self, x):
        self.n += self.training
        return self.odd(self.always(x)) if self.n % 2 else self.always(x)


def test_a_layer_that_did_not_run_has_no_number():
    "fastai shows those of the last time it ran."
    ours, other = side_by_side(Sometimes(), line(4), F.mse_loss)
    means, stale = ours.layer_stats("odd")[0], list(other.layer_stats(1)[0])
    assert [mean == mean for mean in means] == [True, False, True, False]
    assert stale[0] == stale[1] == pytest.approx(means[0], rel=1e-5)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, x): return self.layer(self.layer(x))


def test_a_layer_that_runs_twice_counts_twice():
    "fastai has the numbers of the last call, ours those of all calls of the batch."
    ours, other = side_by_side(Twice(), line(3), F.mse_loss)
    assert ours.history.values("n").eq(2*16).all() and ours.layer_stats(0)[0] != pytest.approx(list(other.layer_stats(0)[0]))


def test_a_batch_that_is_canceled_after_its_forward_pass_is_a_row_of_both():
    from fastai.callback.core import CancelBatchException
    class Cancels(Callback):
        order = 70
        def after_pred(self):
            if self.training and self.iter == 1: raise CancelBatchException
    ours, other = ActivationStats(), theirs()
    learner(linenet(), line(3), [ours, other, Cancels()]).fit(1)
    same(ours, other)
    assert len(ours.stats) == 3


def test_outputs_that_stop_fastai():
    "A dict, nothing, an empty tensor, one number: fastai fails or warns, ours says what there is."
    class Odd(nn.Module):
        def __init__(self, f):
            super().__init__()
            self.weight, self.f = nn.Parameter(torch.ones(1)), f
        def forward(self, x): return self.f(x*self.weight)
    class Net(nn.Module):
        def __init__(self, f):
            super().__init__()
            self.odd, self.line = Odd(f), nn.Linear(1, 1)
        def forward(self, x):
            self.odd(x)
            return self.line(x)
    for f, n in ((lambda x: {"a": x}, 16), (lambda x: None, 0), (lambda x: x[:0], 0), (lambda x: x[0], 1)):
        ours = ActivationStats(modules=["odd", "line"])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", ResourceWarning)  # of what an earlier test has left to be collected
            learner(Net(f), line(2), [ours]).fit(1)
        assert ours.history.values("n")[0].tolist() == [n]*2 and ours.history.values("n")[1].tolist() == [16]*2
        if n != 1:
            with pytest.raises((AttributeError, ZeroDivisionError)): learner(Net(f), line(2), [theirs(modules=None)]).fit(1)
