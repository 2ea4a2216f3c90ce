"""An ActivationStats with a hook of its own records what the hook returns; the hook that it has gives the numbers of one output."""
import warnings

import matplotlib
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import hooklab as hl
from hooklab.hooks.attached import hooks_on
from hooklab.stats.activation_stats import ActivationStats
from hooklab.training.callback import CancelFitException, HookCallback
from hooklab.training.learner import synth_learner
from support.nets import Skips

matplotlib.use("agg")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed(): torch.manual_seed(0)


def net(): return nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 1))


class Largest(ActivationStats):
    def hook(self, m, i, o): return {"max": o.max().item(), "inputs": len(i)}


def largest(m, i, o): return {"max": o.max().item(), "inputs": len(i)}


def largest_by_hand(model, x): return [[{"max": y.max().item(), "inputs": 1} for y in (model[0](x), model(x))]]


both = pytest.mark.parametrize("make", [Largest, lambda **options: ActivationStats(hook=largest, **options)], ids=["subclass", "function"])


# The hook that it has

@pytest.mark.parametrize("o", [torch.randn(5, 7), torch.randn(5, 7).double(), torch.randn(4).half(), torch.randn(3, 4).T, (torch.randn(6), torch.ones(2)),
                               {"a": torch.randn(6)}, torch.randn(6, requires_grad=True)], ids=range(7))
def test_numbers_of_one_output(o):
    x = next(iter(hl.tensors(o))).detach().float()
    wanted = {"mean": x.mean().item(), "std": x.std().item(), "near_zero": (x <= .05).float().mean().item()}
    found = ActivationStats().hook(nn.Linear(1, 1), (x,), o)
    assert list(found) == ["mean", "std", "near_zero"] and found == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    with_hist = ActivationStats(with_hist=True).hook(None, None, o)
    assert list(with_hist) == ["mean", "std", "near_zero", "hist"] and torch.equal(with_hist["hist"], x.histc(40, 0, 10))


def test_numbers_of_what_has_no_tensor():
    assert ActivationStats().hook(None, None, None) is None and ActivationStats().hook(None, None, "text") is None


@pytest.mark.parametrize("with_hist", [False, True])
def test_hook_and_record_have_the_same_numbers(with_hist):
    class ByHook(ActivationStats):
        def hook(self, m, i, o): return super().hook(m, i, o)
    rows = []
    for make in (ByHook, ActivationStats):
        torch.manual_seed(0)
        model = net()
        with make(with_hist).on(model) as s:
            for _ in range(3):
                model(torch.randn(16, 1))
                s.step()
        rows.append(s)
    by_hook, plain = rows
    torch.testing.assert_close(by_hook.stats_tensor, plain.stats_tensor)
    torch.testing.assert_close(torch.tensor(by_hook.layer_stats(1)), torch.tensor(plain.layer_stats(1)))
    assert by_hook.names == plain.names and by_hook.steps == plain.steps and isinstance(by_hook.stats[0][0], dict)
    if with_hist: assert torch.equal(by_hook.hist("2"), plain.hist("2"))


# One of your own

@both
def test_a_hook_of_ones_own_in_a_loop(make):
    model, x = net(), torch.randn(4, 1)
    with make().on(model) as s:
        model(x)
        s.step()
    assert s.stats == largest_by_hand(model, x) and not hooks_on(model)


@both
@pytest.mark.parametrize("every", [None, 1, 2, 3])
def test_a_hook_of_ones_own_in_a_learner(make, every):
    model, seen = net(), []
    class Sees(HookCallback):
        run_valid = False
        def hook(self, m, i, o): return o.max().item()
        def after_pred(self): seen.append(self.hooks.stored)
    s = make(every=every)
    synth_learner(n_trn=7, model=model, quiet=True, device="cpu", cbs=[s, Sees()]).fit(2)
    assert s.steps == list(range(0, 14, every or 1)) and not hooks_on(model)
    assert [[given["max"] for given in row] for row in s.stats] == seen[::every or 1]


@pytest.mark.parametrize("value", [3.5, "text", None, ("a", 1), [torch.ones(2)], torch.ones(2, 2)], ids=str)
def test_a_row_holds_whatever_the_hook_returned(value):
    model = net()
    with ActivationStats(hook=lambda m, i, o: value).on(model) as s:
        model(torch.ones(1, 1))
        s.step()
    assert repr(s.stats) == repr([[value, value]])
    assert s.history.whats == [] and s.table()[1] == {"kind": "activations", "step": 0, "layer": "2"}


def test_the_hook_is_shown_what_that_of_a_hook_callback_is_shown():
    def shown(m, i, o): return type(m), type(i), len(i), o.requires_grad, o.shape
    model, x = net(), torch.randn(4, 1)
    for options in ({}, {"detach": False}, {"cpu": False}, {"modules": nn.ReLU}, {"include_paramless": True}):
        rows = []
        class Keeps(HookCallback):
            def after_pred(self): rows.append(self.hooks.stored)
        synth_learner(n_trn=1, data=([(x, x)], None), model=model, quiet=True, device="cpu", cbs=[Keeps(hook=shown, **options)]).fit(1)
        with ActivationStats(hook=shown, **options).on(model) as s:
            model(x)
            s.step()
        assert s.stats == rows


def test_what_the_hook_returned_is_safe_from_layers_in_place():
    model = nn.Sequential(nn.Linear(1, 8), nn.ReLU(inplace=True))
    x = torch.randn(4, 1)
    with ActivationStats(hook=lambda m, i, o: o).on(model) as s:
        model(x)
        s.step()
    assert torch.equal(s.stats[0][0], model[0](x))


def test_gradients_are_shown_on_request():
    model, x = net(), torch.randn(4, 1)
    with ActivationStats(is_forward=False, hook=lambda m, gi, go: {"mean": go[0].mean().item(), "std": go[0].std().item()}).on(model) as s:
        for k in range(2):
            ((k + 1)*model(x)).sum().backward()
            s.step()
    assert [row[1]["mean"] for row in s.stats] == [1., 2.] and s.gradients is s.history and s.gradients.kind == "gradients" and s.stats_tensor.shape == (2, 2, 2)


def test_eval_mode_is_left_alone_also_between_a_pass_and_its_step():
    model, calls = net(), []
    def f(m, i, o):
        calls.append(m)
        return len(o)
    with ActivationStats(hook=f).on(model) as s:
        model(torch.ones(4, 1))
        model.eval()(torch.ones(5, 1))
        model.train()
        s.step()
        model.eval()(torch.ones(5, 1))
        s.step()
    assert s.stats == [[4, 4]] and len(calls) == 2


@pytest.mark.parametrize("is_forward", [True, False])
def test_eval_mode_leaves_nothing_behind(is_forward):
    model = net()
    with ActivationStats(is_forward=is_forward, hook=lambda m, i, o: 1).on(model) as s:
        for mode in (True, False, True, False):
            model.train(mode)(torch.ones(4, 1)).sum().backward()
            s.step()
    assert s.stats == [[1, 1]]*2 and s.steps == [0, 2]


def test_a_layer_that_did_not_run_has_nothing_and_one_that_ran_twice_its_last_call():
    class Sometimes(nn.Module):
        def __init__(self):
            super().__init__()
            self.always, self.odd, self.n = nn.Linear(1, 1), nn.Linear(1, 1), 0
        def forward(self, x):
            self.n += 1
            return self.odd(self.odd(x)) if self.n % 2 else self.always(x)
    model, x = Sometimes(), torch.ones(2, 1)
    with ActivationStats(hook=lambda m, i, o: {"mean": o.mean().item()}).on(model) as s:
        for _ in range(2):
            model(x)
            s.step()
    assert s.stats == [[None, {"mean": model.odd(model.odd(x)).mean().item()}], [{"mean": model.always(x).mean().item()}, None]]
    assert s.history.values("mean").isnan().tolist() == [[True, False], [False, True]]


def test_several_passes_make_one_row():
    model = net()
    with ActivationStats(hook=lambda m, i, o: len(o)).on(model) as s:
        for size in (2, 3):
            model(torch.ones(size, 1)).sum().backward()
        s.step()
    assert s.stats == [[3, 3]]


@pytest.mark.parametrize("compiled", [False, True])
def test_between_recorded_steps_the_hooks_are_off(compiled):
    """Where anything was compiled they stay on the model, to avoid recompilation, and call nothing. What watches
    the loop stays: it sees every step."""
    torch._dynamo.reset()
    if compiled: torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
    model, on, calls = net(), [], []
    def f(m, i, o): calls.append(len(on))
    with ActivationStats(every=3, hook=f, modules="0").on(model) as s:
        for _ in range(5):
            on.append(any(row.kind != "loop" for row in hooks_on(model)))
            model(torch.ones(1, 1))
            s.step()
    torch._dynamo.reset()
    assert on == ([True]*5 if compiled else [True, False, False, True, False])
    assert calls == [1, 4] and s.steps == [0, 3] and s.stats == [[None], [None]] and not hooks_on(model)


def test_long_runs_are_thinned_out():
    model = net()
    with ActivationStats(hook=lambda m, i, o: i[0].mean().item(), modules="0", max_rows=4).on(model) as s:
        for k in range(11):
            model(torch.full((1, 1), float(k)))
            s.step()
    assert s.steps == [0, 4, 8] and s.stats == [[0.], [4.], [8.]]


def test_an_error_in_the_hook_leaves_nothing():
    model = net()
    def fail(m, i, o): raise ZeroDivisionError
    s = ActivationStats(hook=fail)
    with pytest.raises(ZeroDivisionError): synth_learner(model=model, quiet=True, device="cpu", cbs=s).fit(1)
    assert not hooks_on(model) and s.stats == []
    with pytest.raises(ZeroDivisionError), s.on(model): model(torch.ones(1, 1))
    assert not hooks_on(model)


def test_the_hook_can_cancel():
    def stop(m, i, o): raise CancelFitException
    learn = synth_learner(quiet=True, device="cpu", cbs=ActivationStats(hook=stop))
    learn.fit(5)
    assert learn.epoch == 0 and not hooks_on(learn.model)


def test_a_layer_that_never_runs_is_told_once():
    model = Skips()
    with pytest.warns(hl.HookWarning, match="^b: hooked, but never called") as told:
        with ActivationStats(every=2, modules="*", hook=largest).on(model) as s:
            for _ in range(5):
                model(torch.ones(1, 1))
                s.step()
    assert len(told) == 1


def test_a_subclass_may_look_at_its_hooks_in_after_batch():
    class Looks(Largest):
        seen = ()
        def after_batch(self):
            if self.training: self.seen = *self.seen, self.hooks.stored
            super().after_batch()
    s = Looks()
    synth_learner(n_trn=3, model=net(), quiet=True, device="cpu", cbs=s).fit(1)
    assert list(s.seen) == s.stats and len(s.seen) == 3


def test_the_same_object_without_the_hook_again():
    s, model = ActivationStats(hook=largest), net()
    for has_own in (True, False):
        if not has_own: del s.hook
        with s.on(model):
            model(torch.ones(1, 1))
            s.step()
        assert ("max" in s.stats[0][0]) == has_own and ("mean" in s.stats[0][0]) != has_own and (s.hooks is not None) == has_own


# Reading, drawing, and what cannot be done

def test_pictures_of_the_numbers_that_are_there():
    class More(ActivationStats):
        def hook(self, m, i, o): return super().hook(m, i, o) | {"max": o.max()}
    model = net()
    with More(with_hist=True).on(model) as s:
        for k in range(4):
            model(torch.full((4, 1), float("nan") if k == 3 else 1.))
            s.step()
    assert s.history.whats == ["mean", "std", "near_zero", "max"] and s.history.has_hist
    assert len(s.plot()) == 3 and s.plot_layer_stats(0)[0].lines[0].get_ydata()[:3].tolist() == pytest.approx(s.layer_stats(0)[0][:3])
    assert "not finite, first in 0 at step 3" in s.history.plot("mean").get_title(loc="left")
    assert s.color_dim(0).images and s.plot_hist(1, 0).patches and len(s.plot_all()) and s.history.plot("max").get_ylabel() == "max"
    assert s.table()[0].keys() == {"kind", "step", "layer", "mean", "std", "near_zero", "max"}


def test_before_anything_is_recorded():
    s = ActivationStats(hook=largest).on(net())
    with warnings.catch_warnings(action="ignore"): s.remove()
    assert s.stats == [] and s.stats_tensor.shape == (2, 2, 0) and s.layer_stats(0) == [[], [], []] and s.table() == [] and not s.history.has_hist


@both
def test_what_needs_other_numbers_says_so(make, tmp_path):
    model = net()
    with make().on(model) as s:
        model(torch.ones(1, 1))
        s.step()
    for f in (s.plot, lambda: s.stats_tensor, s.dead_chart, lambda: s.hist(0), lambda: s.color_dim(0), lambda: hl.diagnose(s), lambda: s.report(tmp_path/"run.html")):
        with pytest.raises(LookupError, match=r"was not recorded: your hook returned max, inputs\. .*without a custom hook") as error: f()
        assert "\n" not in str(error.value)
    for f in (lambda: s.save(tmp_path/"run.safetensors"), s.combine):
        with pytest.raises(TypeError, match=r"^there .*: your hook returned max, inputs\. .*without a custom hook"): f()
    assert not list(tmp_path.iterdir())


@both
@pytest.mark.parametrize("option", [{"grads": True}, {"counts": True}, {"hist_sample": 10}], ids=str)
def test_options_without_a_meaning_are_refused(make, option):
    model = net()
    with pytest.raises(TypeError, match=f"custom hook.* {next(iter(option))}= .*is_forward=False"): make(**option).on(model)
    assert not hooks_on(model)


def test_updates_are_recorded_beside_it():
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=.1)
    with ActivationStats(hook=largest).on(model, optimizer=opt) as s:
        for _ in range(3):
            F.mse_loss(model(torch.ones(4, 1)), torch.zeros(4, 1)).backward()
            opt.step()
            s.step()
    assert s.updates.values().shape == (4, 3) and (s.updates.values("update") > 0).any() and len(s.stats) == 3


def test_in_a_compiled_model():
    model = net()
    compiled = torch.compile(model, backend="eager")
    with ActivationStats(hook=lambda m, i, o: {"mean": o.mean()}).on(compiled) as s, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(3):
            compiled(torch.full((4, 1), float(k)))
            s.step()
    inputs = [torch.full((4, 1), float(k)) for k in range(3)]
    wanted = [[model[0](x).mean().item(), model(x).mean().item()] for x in inputs]
    torch.testing.assert_close(s.history.values("mean"), torch.tensor(wanted).T)
    torch._dynamo.reset()
