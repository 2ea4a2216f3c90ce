"""A copy or a pickle has what was recorded and nothing that is attached; an object without its attributes says so."""
import copy
import io
import pickle
import threading
from functools import partial

import pytest
import torch
from torch import nn

import hooklab as hl
from hooklab.hooks.attached import hooks_on
from hooklab.stats.activation_stats import ActivationStats
from hooklab.stats.live import LivePlot
from hooklab.stats.measure.own_hook import HookHistory
from hooklab.stats.measure.session import Session
from hooklab.stats.records.history import History, WeightHistory
from hooklab.stats.records.moments import row_names
from hooklab.training.callback import Callback, HookCallback
from hooklab.training.learner import Learner, TrainEvalCallback, synth_learner
from hooklab.training.progress import ProgressCallback, Recorder

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed(): torch.manual_seed(0)


def pickled(x): return pickle.loads(pickle.dumps(x))


def saved(x):
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


each_way = pytest.mark.parametrize("twin_of", [copy.deepcopy, copy.copy, pickled, saved], ids=lambda f: f.__name__)
each_deep_way = pytest.mark.parametrize("twin_of", [copy.deepcopy, pickled, saved], ids=lambda f: f.__name__)


class Calls(HookCallback):
    n = 0
    def hook(self, m, i, o): self.n += 1


class Largest(ActivationStats):
    def hook(self, m, i, o): return {"mean": o.mean().item(), "std": o.std().item()}


def largest(m, i, o): return {"mean": o.mean().item(), "std": o.std().item()}


def net(): return nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 1))


def live():
    with pytest.warns(UserWarning, match="needs Jupyter"): return ActivationStats().live()


fresh = {"stats": ActivationStats, "all": partial(ActivationStats, with_hist=True, grads=True, every=2, counts=True, modules="0"), "live": live,
         "own hook": Largest, "function": partial(ActivationStats, hook=largest), "gradients": partial(ActivationStats, is_forward=False)}
kinds = {**fresh, "Callback": Callback, "HookCallback": Calls, "Recorder": Recorder, "ProgressCallback": ProgressCallback, "TrainEvalCallback": TrainEvalCallback,
         "Learner": partial(synth_learner, cbs=[ActivationStats, Calls], device="cpu"), "LivePlot": lambda: live().live_plot,
         "History": lambda: History(["a"], row_names(False, True)), "WeightHistory": lambda: WeightHistory(["a"], ["update", "data"]),
         "HookHistory": lambda: HookHistory(["a"]),
         "Timeline": lambda: hl.Timeline(net()), "Hook": lambda: hl.hook_output(net()[0]), "Hooks": lambda: hl.hook_outputs(net()),
         "FeatureExtractor": lambda: hl.FeatureExtractor(net(), ["0"]), "Summary": lambda: hl.summary(net(), torch.ones(1, 1))}


@pytest.mark.parametrize("make", kinds.values(), ids=kinds)
@each_way
def test_all_that_has_a_state_can_be_copied(make, twin_of):
    one = make()
    twin = twin_of(one)
    assert type(twin) is type(one) and isinstance(repr(twin), str) and vars_of(twin).keys() >= vars_of(one).keys()


def vars_of(x): return getattr(x, "__dict__", {})


@pytest.mark.parametrize("kind", [Callback, Calls, ActivationStats, Largest, Recorder, ProgressCallback, TrainEvalCallback, Learner, LivePlot, History, WeightHistory,
                                  HookHistory, hl.Timeline, hl.Hook, hl.Hooks, hl.FeatureExtractor, hl.Summary], ids=lambda kind: kind.__name__)
def test_an_object_without_its_attributes_says_so(kind):
    "As copy and pickle make them. A recursion in `__getattr__` would be told as one here."
    bare = kind.__new__(kind)
    for name in ("nothing_of_that_name", "__deepcopy_of__"):
        with pytest.raises(AttributeError, match=name): getattr(bare, name)


def test_callbacks_without_their_attributes_have_no_learner():
    for kind in (Callback, HookCallback, ActivationStats, Recorder, ProgressCallback): assert kind.__new__(kind).learn is None


# Statistics

def recorded(make, model, steps=3):
    s = make().on(model)
    for k in range(steps):
        (model(torch.randn(4, 1)).square().mean()).backward()
        s.step()
    return s


def same(s, twin):
    for (kind, a), (their_kind, b) in zip(s.histories.items(), twin.histories.items(), strict=True):
        assert (kind, a.names, a.steps, a.cpu) == (their_kind, b.names, b.steps, b.cpu)
        for what in ("mean", "std"): assert torch.equal(a.values(what), b.values(what)) and len(a) > 0


@each_deep_way
@pytest.mark.parametrize("while_recording", [True, False])
@pytest.mark.parametrize("make", [make for name, make in fresh.items() if name != "live"], ids=[name for name in fresh if name != "live"])
def test_what_was_recorded_survives_and_nothing_that_is_attached(make, while_recording, twin_of):
    model = net()
    s = recorded(make, model)
    if not while_recording: s.remove()
    attached = len(hooks_on(model))
    twin = twin_of(s)
    assert len(hooks_on(model)) == attached  # what watches the loop stays on between recorded steps
    assert any(row.kind != "loop" for row in hooks_on(model)) == (while_recording and s.session.due)
    same(s, twin)
    assert repr(twin) == repr(s).removesuffix(", recording") and twin.learn is None and twin.session is None
    assert not any(isinstance(x, nn.Module | torch.optim.Optimizer | Session) for x in vars(twin).values())
    with pytest.raises(RuntimeError, match="nothing is being recorded"): twin.step()
    if while_recording: recorded_on = [*s.steps]
    again = net()
    recorded(lambda: twin, again, steps=2).remove()
    assert not hooks_on(again) and len(twin.stats) == len(range(0, 2, twin.every or 1)), "and it can be used again"
    if while_recording:
        model(torch.randn(4, 1)).sum().backward()
        s.step()
        assert len(s.steps) == len(recorded_on) + (twin.every is None), "the original goes on"
        s.remove()
    assert not hooks_on(model)


@each_deep_way
def test_optimizer_and_scaler_stay_behind(twin_of):
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=.1)
    with ActivationStats(grads=True).on(model, optimizer=opt, scaler=torch.amp.GradScaler("cpu")) as s:
        for _ in range(2):
            s.session.scaler.scale(model(torch.ones(4, 1)).sum()).backward()
            opt.step()
            s.step()
        twin = twin_of(s)
    assert twin.session is None and twin.scaled and twin.skipped == []
    assert torch.equal(twin.updates.values(), s.updates.values()) and len(opt._optimizer_step_pre_hooks) == len(opt._optimizer_step_post_hooks) == 0


# A learner

class Copies(Callback):
    "Has the learner copied in the middle of training."
    order = 70
    def __init__(self, twin_of, event):
        self.twin_of, self.twin = twin_of, None
        setattr(self, event, self.act)
    def act(self):
        if self.training and self.iter == 2:
            twin_of, self.twin_of = self.twin_of, None
            for event in ("after_backward", "after_batch"): vars(self).pop(event, None)
            self.twin = twin_of(self.learn)


@each_deep_way
@pytest.mark.parametrize("cbs", [[], [ActivationStats], [Largest], [partial(ActivationStats, hook=largest)], [partial(ActivationStats, every=2, grads=True), Calls]], ids=range(5))
def test_a_learner_with_callbacks(cbs, twin_of):
    learn = synth_learner(n_trn=4, quiet=True, device="cpu", cbs=[make() for make in cbs])
    for fits in range(2):
        if fits: learn.fit(1)
        twin = twin_of(learn)
        assert isinstance(twin, Learner) and all(cb.learn is twin for cb in twin.cbs) and not hooks_on(twin.model)
        assert [type(cb) for cb in twin.cbs] == [type(cb) for cb in learn.cbs]
        assert all(map(torch.equal, twin.model.parameters(), learn.model.parameters())) and twin.recorder.losses == learn.recorder.losses
        if cbs: assert repr(twin.cbs[2]) == repr(learn.cbs[2]) and twin.cbs[2].stats == learn.cbs[2].stats
        twin.fit(1)
        assert not hooks_on(twin.model) and not hooks_on(learn.model) and len(twin.recorder.losses) == 4


@each_deep_way
@pytest.mark.parametrize("event", ["after_backward", "after_batch"])
def test_a_learner_in_the_middle_of_training(event, twin_of):
    learn = synth_learner(n_trn=4, quiet=True, device="cpu", cbs=[ActivationStats(), Calls(), Copies(twin_of, event)])
    learn.fit(1)
    twin = learn.copies.twin
    assert not hooks_on(twin.model) and twin.pred is twin.loss is twin.loss_grad is None and len(twin.activation_stats.stats) == 2 + (event == "after_batch")
    assert len(learn.activation_stats.stats) == 4
    twin.fit(1)
    assert len(twin.activation_stats.stats) == 4 and not hooks_on(twin.model)


@each_deep_way
def test_a_learner_with_a_bar(twin_of, monkeypatch):
    "It writes to a terminal, which cannot be copied."
    monkeypatch.setattr("hooklab.training.progress.tqdm", Bar)
    learn = synth_learner(n_trn=2, device="cpu")
    learn.fit(1)
    twin = twin_of(learn)
    assert learn.progress.bar is not None and twin.progress.bar is None
    twin.fit(1)


class Bar:
    "As that of tqdm in a terminal."
    def __init__(self, **options): self.lock = threading.Lock()  # cannot be copied either
    def update(self): return True
    def set_postfix_str(self, *args, **kwargs): pass
    def close(self): pass
    def write(line): pass


@each_deep_way
def test_a_timeline_keeps_its_rows(twin_of):
    model = net()
    with hl.Timeline(model) as events:
        model(torch.ones(1, 1))
        twin = twin_of(events)
        attached = len(hooks_on(model))
        twin.remove()
        assert repr(twin) == repr(events) and len(hooks_on(model)) == attached > 0
