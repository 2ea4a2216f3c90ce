"""Ctrl-C at any place of hooklab's code: nothing of ours stays, the interrupt comes out, and the next use is right.

`support/interrupts.py` raises KeyboardInterrupt where Python looks for signals: when a function begins and when it has
returned, at each jump backwards, when a function written in C has returned, and at each line. All places of all tools:
`python -m tests.bench interrupts`."""
import pytest
import torch
from torch import nn

import hooklab as hl
from support.interrupts import Interrupts, Place, Signals, expected_of, interrupted, places_of
from support.portions import sample, sweep
from support.worlds import TOOLS

QUICK = ["hook_outputs, where other hooks are", "hooks_on_tensors", "edit_calls", "find_nan", "activation_stats",
         "summary"]


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


@pytest.mark.filterwarnings("ignore::hooklab.hooks.copies.HookWarning")
@pytest.mark.parametrize("way", ["remove_hooks", "remove", "the next with"])
def test_before_exit_begins(way):
    "No code can act before the first instruction of `__exit__`: hooks stay on, and each of three ways takes them off."
    model, x = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.ones(1, 2)
    before = dict(vars(model[0]))
    hooks = hl.hook_outputs(model, names="*")
    line = type(hooks).__exit__.__code__.co_firstlineno
    with Interrupts(Place("hooks/hook.py", "Hooks.__exit__", line, "entry")), pytest.raises(KeyboardInterrupt):
        with hooks: model(x)
    assert len(hl.hooks_on(model)) == 3
    if way == "remove_hooks": assert hl.remove_hooks(model) == 2
    elif way == "remove": hooks.remove()
    else:
        with hooks: model(x)
    assert not hl.hooks_on(model) and hooks.removed and vars(model[0]) == before


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
