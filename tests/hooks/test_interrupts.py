"""Ctrl-C at any place of hooklab's code: nothing of ours stays, the interrupt comes out, and the next use is right.

`support/interrupts.py` raises KeyboardInterrupt where Python looks for signals: when a function begins and when it has
returned, at each jump backwards, when a function written in C has returned, and at each line. All places of all tools:
`python -m tests.bench interrupts`."""
import sys
from contextlib import ExitStack, suppress

import pytest
import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack, _push_mode

import hooklab as hl
from hooklab.hooks.files import write_file
from support.interrupts import Interrupts, Signals, expected_of, interrupted, places_of
from support.portions import sample, sweep
from support.worlds import TOOLS

QUICK = ["hook_outputs, where other hooks are", "hooks_on_tensors", "edit_calls", "find_nan", "activation_stats",
         "a_loop_that_clips", "summary"]


def check(tool, tmp_path, choose):
    "Interrupt a tool at the places that are chosen, at each of these in a run of its own."
    found, expected = places_of(tool, tmp_path), expected_of(tool, tmp_path)
    places = choose(found.seen)
    for place in places:
        wrong, removed = interrupted(tool, place, tmp_path, expected)
        assert not wrong, f"{tool}, {place}: {wrong}"
        assert place in found.borders or not removed
    last = places[len(places)//2]  # and there when it comes for the last time
    wrong, _ = interrupted(tool, last, tmp_path, expected, number=found.seen[last])
    assert not wrong, f"{tool}, {last} for the last time: {wrong}"


def a_few(places):
    "One place in eighty, and the first of each kind."
    places = list(places)
    return list(dict.fromkeys([*{place.kind: place for place in places[::-1]}.values(), *places[::80]]))


@pytest.mark.parametrize("tool", QUICK)
def test_an_interrupt_leaves_nothing(tool, tmp_path): check(tool, tmp_path, a_few)


@sweep
@pytest.mark.parametrize("tool", TOOLS)
def test_an_interrupt_at_any_place_leaves_nothing(tool, tmp_path):
    check(tool, tmp_path, lambda places: sample(40, places, kind=lambda place: place.kind))


def test_an_interrupt_while_a_file_is_written(tmp_path):
    "At each place of it: the file is the old one or the new one, and nothing unfinished is beside it."
    path = tmp_path/"file"
    with Interrupts() as found: write_file(path, b"old")
    places = [place for place in found.seen if place.file == "hooks/files.py"]
    for place in places:
        with Interrupts(place) as at, suppress(KeyboardInterrupt): write_file(path, b"new")
        assert at.raised, place
        assert path.read_bytes() in (b"old", b"new") and [*tmp_path.iterdir()] == [path], place
        write_file(path, b"old")
    assert len(places) > 30


class RunsOf:
    "Runs of a tool that are interrupted before the first instruction of `__exit__` or `__enter__`."
    def __init__(self, **functions): self.functions = functions
    def __call__(self, frame, event, arg):
        for name, file in self.functions.items():
            if frame.f_code.co_name == name and frame.f_code.co_filename.endswith(file):
                sys.settrace(None)
                raise KeyboardInterrupt


WITHS = {
    "hook_output": lambda m: hl.hook_output(m[0]), "hook_outputs": lambda m: hl.hook_outputs(m, names="*"),
    "edit_output": lambda m: hl.edit_output(m[0], hl.scale(2)), "find_nan": hl.find_nan,
    "hook_calls": lambda m: hl.hook_calls(m, torch.relu),
    "edit_calls": lambda m: hl.edit_calls(m, torch.relu, hl.scale(2)), "Timeline": hl.Timeline,
    "by_token": lambda m: hl.by_token(m, "0"), "verbose_execution": lambda m: hl.VerboseExecution(m),
    "ActivationStats": lambda m: hl.ActivationStats().on(m), "AttentionStats": lambda m: hl.AttentionStats().on(m)}


@pytest.mark.parametrize("place", ["_ended", "__enter__"])
@pytest.mark.parametrize("name", WITHS)
def test_before_exit_or_enter_begins(name, place):
    "Python looks for signals before the first instruction of a function, where no `try` of its own can act."
    model, x = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.ones(1, 2)
    before = [dict(vars(m)) for m in model.modules()]
    tool = WITHS[name](model)
    assert hl.hooks_on(model)
    stop = RunsOf(**{place: "putting_back.py" if place == "_ended" else ".py"})
    with pytest.raises(KeyboardInterrupt):
        if place == "__enter__": sys.settrace(stop)
        with tool:
            model(x)
            sys.settrace(stop)
    assert not hl.hooks_on(model) and [vars(m) for m in model.modules()] == before


def test_hooks_stay_where_no_with_has_begun():
    "Reading `__exit__`, or calling it, is no `with`; and an `ExitStack` ends what it has entered."
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    hooks = hl.hook_outputs(model, names="*")
    end = hooks.__exit__
    del end
    assert hasattr(hooks, "__exit__") and len(hl.hooks_on(model)) == 3
    with ExitStack() as stack: assert stack.enter_context(hooks) is hooks and len(hl.hooks_on(model)) == 3
    assert not hl.hooks_on(model)
    hooks = hl.hook_outputs(model)
    hooks.__exit__(ValueError, ValueError(), None)
    assert not hl.hooks_on(model)


@pytest.mark.filterwarnings("ignore::hooklab.hooks.copies.HookWarning")
@pytest.mark.parametrize("way", ["remove_hooks", "remove", "the next with"])
def test_behind_a_constructor(way):
    "Between a constructor that attaches and the `with`, no code of hooklab runs: each of three ways takes hooks off."
    model, x = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.ones(1, 2)
    before = dict(vars(model[0]))
    hooks = hl.hook_outputs(model, names="*")
    if way == "remove_hooks": assert hl.remove_hooks(model) == 2
    elif way == "remove": hooks.remove()
    else:
        with hooks: model(x)
    assert not hl.hooks_on(model) and hooks.removed and vars(model[0]) == before


def test_warnings_name_the_line_of_the_user():
    "Whatever of hooklab's, or of contextlib's, lies between."
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    class Written(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))
        def forward(self, x):
            self.weight.data.numpy()[0] += 1  # not seen
            torch._C._autograd._unsafe_set_version_counter([self.weight], [self.weight._version + 1])
            return x
    def used():
        with hl.hook_outputs(model): pass
        hl.hook_output(model[0]).remove()
        with hl.find_nan(model): pass
        with hl.ActivationStats().on(model): pass
        hl.summary(Written(), torch.ones(1, 2))
    with pytest.warns(hl.HookWarning) as seen: used()
    assert len(seen) >= 4 and {one.filename for one in seen} == {__file__}


@pytest.mark.parametrize("way", ["remove_hooks", "the next hooks"])
def test_a_mode_that_torch_puts_back_later(way):
    "torch puts a mode back when Python frees what Ctrl-C has stopped, and that may be after our hooks are off."
    model, x = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.ones(1, 2)
    with hl.hook_calls(model, torch.relu) as calls: model(x)
    _push_mode(calls.group.mode)
    if way == "remove_hooks": hl.remove_hooks(model)
    else: hl.hook_output(model[0]).remove()
    assert not _get_current_function_mode_stack()


def test_hooks_on_saved_tensors_that_torch_has_put_on(monkeypatch):
    "torch's own context manager leaves them on where Ctrl-C comes when its function in C has returned."
    enter = torch.autograd.graph.saved_tensors_hooks.__enter__
    def stopped(self):
        enter(self)
        raise KeyboardInterrupt
    monkeypatch.setattr(torch.autograd.graph.saved_tensors_hooks, "__enter__", stopped)
    before = torch._C._autograd._top_saved_tensors_default_hooks(True)
    with pytest.raises(KeyboardInterrupt), hl.saved_tensors(print): pass
    with pytest.raises(KeyboardInterrupt): hl.cost(nn.Linear(2, 2), torch.ones(1, 2))
    assert before is None and torch._C._autograd._top_saved_tensors_default_hooks(True) is None


def test_a_mode_that_is_in_use_stays():
    "Hooks that are attached, and taken off, while a layer runs leave the mode of that layer's hooks on."
    model, x, seen = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.ones(1, 2), []
    def attaches(m, inputs, output):
        hl.hook_output(model[1]).remove()
        seen.append(hl.remove_hooks(nn.Linear(1, 1)))
    model[0].register_forward_hook(attaches)
    with hl.hook_calls(model, torch.relu) as calls: model(x)
    assert len(calls) == 1 and seen == [0]


def test_hooks_on_the_steps_of_an_optimizer_are_listed_and_removed():
    "Who has lost the hook, as by Ctrl-C before its name was assigned, has the optimizer."
    optimizer, seen = torch.optim.SGD(nn.Linear(2, 2).parameters()), []
    optimizer.register_step_post_hook(lambda *given: seen.append("theirs"))
    hl.step_hook(optimizer, lambda *given: seen.append("after"))
    hl.step_hook(optimizer, lambda *given: seen.append("before"), before=True)
    listed = [(h.type, h.kind, h.ours) for h in hl.hooks_on(optimizer)]
    assert listed == [("SGD", "step_pre", True), ("SGD", "step", False), ("SGD", "step", True)]
    assert hl.remove_hooks(optimizer) == 2
    optimizer.step()
    assert seen == ["theirs"] and len(hl.hooks_on(optimizer)) == 1


def test_where_torch_has_put_a_hook_of_which_no_handle_came():
    "A register function of torch may have done its work when Ctrl-C comes, and its handle is lost."
    p = nn.Parameter(torch.ones(2))
    register = torch.Tensor.register_hook
    class Stopped(torch.Tensor):
        def register_hook(self, hook):
            register(self, hook)
            raise KeyboardInterrupt
    t = p.detach().as_subclass(Stopped).requires_grad_()
    with pytest.raises(KeyboardInterrupt): hl.tensor_hook(t)
    assert not t._backward_hooks

    class Layer(nn.Linear):
        def register_forward_hook(self, *args, **kwargs):
            super().register_forward_hook(*args, **kwargs)
            raise KeyboardInterrupt
    m = Layer(2, 2)
    m.register_forward_pre_hook(print)
    with pytest.raises(KeyboardInterrupt): hl.Hook(m, lambda m, i, o: None, with_kwargs=True, always_call=True)
    assert not m._forward_hooks and not m._forward_hooks_with_kwargs and not m._forward_hooks_always_called
    assert list(m._forward_pre_hooks.values()) == [print]


def test_the_tracer_comes_to_places_of_all_kinds(tmp_path):
    "If Python named its instructions otherwise, the tests above would find nothing, and pass."
    found = places_of("activation_stats", tmp_path)
    kinds = [place.kind for place in found.seen]
    assert min(kinds.count(kind) for kind in ("entry", "return", "line", "call")) > 100 and kinds.count("jump") > 30
    assert 0 < len(found.borders) < len(found.inner)/20


def test_a_leak_is_found(tmp_path, monkeypatch):
    "The harness itself: an `__exit__` that gives up where it is interrupted is found out."
    def leave(self, exc_type, *_): self.group.close(report=exc_type is None, in_context=True)
    monkeypatch.setattr(hl.Hooks, "__exit__", leave)
    found, expected = places_of("hook_outputs", tmp_path), expected_of("hook_outputs", tmp_path)
    places = [place for place in found.seen if place.function == "Group.close"]
    wrong = {place: interrupted("hook_outputs", place, tmp_path, expected).wrong for place in places}
    left = [place.kind for place, found in wrong.items() if found]
    assert {"entry", "line"} <= set(left) and len(left) < len(wrong)


@pytest.mark.parametrize("tool", ["hook_outputs", "gradients_of_layers", "find_nan", "activation_stats"])
def test_signals(tool, tmp_path):
    "A real signal at a random moment, inside or outside of hooklab: after `remove_hooks` everything is right."
    with Signals() as signals:
        for _ in range(12):
            outcome, _ = signals.interrupt(tool, tmp_path, expected_of(tool, tmp_path), most=6e-3)
            assert not outcome.wrong
