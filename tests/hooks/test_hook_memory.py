"""What hooks hold: no more than they promise while they are on, and nothing afterwards."""
import gc
import sys
import weakref

import pytest
import torch
from torch import Tensor, nn

import hooklab as hl


class Box:
    "Something that a layer is handed and that is no container, such as a cache of keys and values."


class Mark(torch.autograd.Function):
    "Leaves a node in the graph that can be watched: it is a Python object."
    made = []

    @staticmethod
    def forward(ctx, x):
        Mark.made.append(weakref.ref(ctx))
        return x*1

    @staticmethod
    def backward(ctx, g): return g


class Caching(nn.Module):
    "Hands an intermediate result out through an argument, and back as a part of its output."
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, box):
        box.keys = Mark.apply(self.a(x))
        return {"out": self.b(box.keys), "cache": box}


@pytest.fixture(autouse=True)
def unmarked(): Mark.made.clear()


def alive(collect=True) -> int:
    "How many of the marked nodes are still there."
    if collect: gc.collect()
    return sum(ref() is not None for ref in Mark.made)


def everything(m, *given): return given


KINDS = "forward", "forward_pre", "backward", "backward_pre"
WAYS = [(kind, detach, rooted, keep) for kind in KINDS
        for detach, rooted, keep in [(True, True, None), (False, True, None), (True, False, None), (True, False, 3), (False, False, None)]]
QUICK = ("forward", True, False, 3), ("backward", True, True, None)


@pytest.mark.parametrize("kind,detach,rooted,keep", [pytest.param(*way, marks=[] if way in QUICK else pytest.mark.slow) for way in WAYS])
def test_two_thousand_steps(kind, detach, rooted, keep):
    "There are as many tensors and blocks of memory after 2,000 steps as after 100."
    model, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), torch.randn(2, 4, requires_grad=True)
    h = hl.Hooks(hl.layers(model), everything, kind=kind, detach=detach, keep=keep, root=model if rooted else None)
    found = []
    for steps in (100, 1900):
        for _ in range(steps): model(x).sum().backward()
        gc.collect()
        found.append((sum(issubclass(type(one), Tensor) for one in gc.get_objects()), sys.getallocatedblocks()))
    assert found[1][0] <= found[0][0] and found[1][1] < found[0][1] + 500
    assert all(len(one.calls) == (keep or 1) for one in h)
    h.remove()


@pytest.mark.parametrize("kind,detach,rooted,keep", WAYS)
def test_graph_is_freed(kind, detach, rooted, keep):
    "When the hooks are gone, or what they stored is cleared, nothing is alive of what a pass made; counting references is enough."
    for let_go in (hl.Hooks.clear, lambda hooks: None):
        Mark.made.clear()
        model, box = Caching(), Box()
        ref = weakref.ref(box)
        h = hl.Hooks(hl.layers(model) | {"all": model}, everything, kind=kind, detach=detach, keep=keep, root=model if rooted else None)
        for _ in range(2): model(torch.randn(2, 4, requires_grad=True), box)["out"].sum().backward()
        gc.collect()
        gc.disable()
        try:
            h.remove()
            let_go(h)
            if let_go is not hl.Hooks.clear: del h
            del box
            assert len(Mark.made) == 2 and alive(collect=False) == 0 and ref() is None
        finally: gc.enable()


@pytest.mark.parametrize("with_kwargs", [True, False])
@pytest.mark.parametrize("kind", ["backward", "backward_pre"])
def test_graph_is_freed_with_hooks_on(kind, with_kwargs):
    "Gradient hooks listen at nodes of the graph, and must not be what keeps it alive."
    model, box = Caching(), Box()
    with hl.Hooks(hl.layers(model) | {"all": model}, lambda m, *given: None, kind=kind, with_kwargs=with_kwargs):
        out = model(torch.randn(2, 4, requires_grad=True), box)
        out["out"].sum().backward()
        model(torch.randn(2, 4, requires_grad=True), box=box)  # never asked for gradients
        assert alive() == 2
        del out, box
        assert alive() == 0


@pytest.mark.parametrize("backward", [True, False])
def test_input_that_is_returned_is_freed(backward):
    "The node of a tensor that was not computed is held, because no graph may hold it yet, but not longer than needed."
    with hl.Hook(nn.Identity(), lambda m, *given: None, is_forward=False) as h:
        x = torch.ones(3, requires_grad=True)
        out, ref = h.module(x).sum(), weakref.ref(x)
        out.backward()
        assert h.n_calls == 1
        if not backward: out, ref = h.module(x := torch.ones(3, requires_grad=True)), weakref.ref(x)
        del x, out
        gc.collect()
        assert ref() is None


def test_interrupted_pass_lets_go():
    "Ctrl-C in a layer: what was noted on entering it is let go with the hook."
    def interrupt(m, args): raise KeyboardInterrupt
    model, box = Caching(), Box()
    h = hl.Hooks(model, everything, is_forward=False, names="*")
    model.b.register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt): model(torch.randn(2, 4), box)
    h.remove()
    h.clear()
    del box
    assert len(Mark.made) == 1 and alive() == 0


def test_what_is_stored_is_let_go():
    model = nn.Linear(4, 4)
    for kind in KINDS:
        h = hl.Hook(model, everything, kind=kind, detach=False)
        model(torch.randn(2, 4, requires_grad=True)).sum().backward()
        refs = [weakref.ref(t) for t in hl.tensors(h.stored)]
        h.remove()
        assert refs and all(ref() is not None for ref in refs)
        h.clear()
        gc.collect()
        assert not any(ref() is not None for ref in refs)
