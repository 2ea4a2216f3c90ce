"""The promises of the engine, one by one. Sweeps over real models are in test_hook_models.py."""
import copy
import dataclasses
import gc
import io
import pickle
import threading
import warnings
import weakref
from collections import OrderedDict, UserList, namedtuple
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.checkpoint import checkpoint

import hooklab as hl
from hooklab import HookWarning
from hooklab.hooks import books
from hooklab.hooks.tree import map_tensors
from support.nets import Checkpointed, Returns, Twins, all_equal, step

pytestmark = pytest.mark.filterwarnings("error::hooklab.hooks.copies.HookWarning")


def n_hooks(net): return sum(len(getattr(m, d)) for m in net.modules() for d in vars(m) if d.endswith("_hooks"))


# 1. Off means off

@pytest.mark.parametrize("kind", ["forward", "forward_pre", "backward", "backward_pre"])
@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["hook", "body", "model"])
def test_nothing_is_left(net, x, kind, error, where):
    before, keys = step(net, x), list(net.state_dict())

    def f(m, *given):
        if where == "hook" and error: raise error
        return given[-1]

    def broken(m, i): raise error

    foreign = net.act.register_forward_pre_hook(broken) if where == "model" and error else None
    try:
        with hl.Hooks(net, f, kind=kind, names="*") as hooks:
            step(net, x)
            if where == "body" and error: raise error
    except (ValueError, KeyboardInterrupt): assert error
    if foreign: foreign.remove()
    assert n_hooks(net) == 0 and hooks.removed and list(net.state_dict()) == keys
    assert all_equal(step(net, x), before)


def test_attaching_is_all_or_nothing(net, monkeypatch):
    for wrong in ([net.a, object()], [net.a, nn.ModuleList()], [net.a, net.a]):
        with pytest.raises((TypeError, ValueError)): hl.hook_outputs(wrong)
    def fails(*_, **__): raise KeyboardInterrupt
    monkeypatch.setattr(net.b, "register_forward_hook", fails)
    with pytest.raises(KeyboardInterrupt): hl.hook_outputs([net.a, net.act, net.b], root=net)
    assert n_hooks(net) == 0 and not any(type(book) is books.Book for m in net.modules() for book in vars(m).values())


def test_remove_twice_and_leave_others_alone(net, x):
    handle = net.a.register_forward_hook(lambda m, i, o: None)
    h = hl.hook_output(net.a)
    net(x)
    h.remove()
    h.remove()
    assert n_hooks(net) == 1
    handle.remove()


def test_what_was_stored_stays(net, x):
    "After the `with` and after `remove()`, until `clear()`: values, counts, names."
    with hl.hook_outputs(net, names=["a", "b"]) as hooks:
        net(x)
        inside = hooks.stored, [h.calls for h in hooks], [h.n_calls for h in hooks]
    hooks.remove()
    assert hooks.removed and n_hooks(net) == 0
    stored, calls, n_calls = inside
    assert all_equal(hooks.stored, stored) and [h.n_calls for h in hooks] == n_calls == [1, 2]
    assert all(all_equal(h.calls, before) for h, before in zip(hooks, calls)) and len(calls[1]) == 2
    assert torch.equal(hooks.by_name["b"], calls[1][1]) and "removed, 2 calls, " in repr(hooks["b"])
    net(x)
    assert hooks["b"].n_calls == 2  # it is off
    hooks.clear()
    assert hooks.stored == [None, None] and hooks["b"].calls == [] and hooks["b"].n_calls == 0

    h = hl.hook_output(net.a)
    net(x)
    h.remove()
    assert torch.equal(h.stored, net.a(x)) and h.module is net.a
    h.clear()
    assert h.stored is None and h.calls == []


@pytest.mark.parametrize("detach", [True, False])
@pytest.mark.parametrize("kind", ["forward", "forward_pre", "backward", "backward_pre"])
def test_freed_with_the_hooks(x, kind, detach):
    "Who holds the hooks holds what they stored, and the last one to let go frees it, without the garbage collector."
    class Kept: pass
    kept, net = Kept(), nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))

    def f(m, *given, kept=kept): return given[-1]

    gc.collect()
    gc.disable()
    try:
        hooks = hl.Hooks(net, f, kind=kind, names="*", detach=detach)
        loss = net(x*1).square().mean()
        gradients = torch.autograd.grad(loss, list(net.parameters()), create_graph=True)
        function, model, one = weakref.ref(f), weakref.ref(net), hooks[1]
        hooks.remove()
        stored = [weakref.ref(t) for t in hl.tensors(hooks.stored)]
        middle = weakref.ref(hl.tensors(one.stored)[0])
        kept = weakref.ref(kept)
        del f, net
        assert function() is None and kept() is None and model() is None, "a hook that is off holds what it was made of"
        assert stored and all(ref() is not None for ref in stored) and one.module is None and "gone" in repr(one)
        del hooks, loss, gradients
        assert middle() is not None
        del one
        assert not any(ref() is not None for ref in stored)
    finally: gc.enable()


@pytest.mark.parametrize("kind", ["forward", "forward_pre", "backward", "backward_pre"])
@pytest.mark.parametrize("bare", [True, False])
def test_removed_by_its_own_function(net, x, kind, bare):
    "What the function returns after it has removed its hook is not kept."
    refs = []

    def f(m, *given):
        (h if bare else hooks).remove()
        result = torch.ones(3)
        refs.append(weakref.ref(result))
        return result

    if bare: h = hl.Hook(net.a, f, kind=kind)
    else: hooks = hl.Hooks(net, f, kind=kind, names="a")
    step(net, x)
    gc.collect()
    assert len(refs) == 1 and refs[0]() is None and n_hooks(net) == 0
    assert (h if bare else hooks[0]).stored is None


def test_removed_by_another_hook_on_the_layer(net, x):
    "torch calls all the hooks that were there when the call ended, and one of them may take the others off."
    seen = []
    first = hl.Hook(net.a, lambda m, i, o: others.remove())
    others = hl.Hooks([net.a, net.b], lambda m, i, o: seen.append(m))
    edits = hl.Hook(net.b, lambda m, i, o: edit.remove()), hl.edit_output(net.b, lambda m, i, o: o*0)
    edit = edits[1]
    y = net(x)
    assert seen == [] and y.abs().sum() > 0
    first.remove()
    edits[0].remove()
    assert n_hooks(net) == 0


def test_remove_hooks_finds_bare_ones(net, x):
    h = hl.Hook(net.a, lambda m, i, o: None)
    net(x)
    assert hl.remove_hooks(net) == 1 and h.removed and n_hooks(net) == 0


def test_one_of_many_can_be_removed(net, x):
    hooks = hl.hook_outputs(net, names=["a", "b"])
    hooks["a"].remove()
    net(x)
    assert hooks["b"].n_calls == 2 and n_hooks(net) == 3  # b, and the two that begin and end a pass
    hooks["b"].remove()
    assert n_hooks(net) == 0


# 2. Looking changes nothing

@pytest.mark.parametrize("kind", ["forward", "forward_pre", "backward", "backward_pre"])
@pytest.mark.parametrize("detach", [True, False])
def test_bit_identical(net, x, kind, detach):
    before, rng = step(net, x), torch.get_rng_state()
    with hl.Hooks(net, lambda m, *given: given[-1], detach=detach, kind=kind, names="*"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert all_equal(step(net, x), before)
    assert torch.equal(torch.get_rng_state(), rng)


def test_a_returned_value_replaces_nothing(net, x):
    y = net(x)
    with hl.Hooks(net, lambda m, i, o: o*0 + 7, names="*"): assert torch.equal(net(x), y)
    with hl.Hooks(net, lambda m, i: (i[0]*0,), kind="forward_pre", names="*"): assert torch.equal(net(x), y)


def test_an_in_place_edit_is_reported(net, x):
    with hl.Hook(net.a, lambda m, i, o: o.mul_(2)), pytest.warns(HookWarning, match="changed a tensor in place"): net(x)


# 3. What is stored is what the layer returned

@pytest.mark.parametrize("cpu", [True, False])
def test_stored_is_safe_from_in_place_layers(x, cpu):
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
    want = net[0](x).detach()
    with hl.hook_output(net[0], cpu=cpu) as h:
        net(x)
        assert torch.equal(h.stored, want) and not h.stored.requires_grad
    with hl.Hook(net[0], lambda m, i, o: {"view": o[:1], "mean": o.mean()}, cpu=cpu) as h:
        net(x)
        assert torch.equal(h.stored["view"], want[:1])


Pair = namedtuple("Pair", "left right")


@dataclass
class Output:
    logits: Tensor
    extra: dict


@pytest.mark.parametrize("make", [
    lambda x: (x*2, [x*3]), lambda x: {"a": x*2, "b": None}, lambda x: Pair(x*2, x), lambda x: Output(x*2, {"k": x}),
    lambda x: pack_sequence([x[0, :, None], x[1, :2, None]]), lambda x: None, lambda x: torch.max(x, dim=0), lambda x: (x*2).to_sparse()])
def test_containers_keep_their_type(make, x):
    layer = Returns(make)
    with hl.hook_output(layer) as h:
        y = layer(x)
        assert type(h.stored) is type(y)
        for s, t in zip(hl.tensors(h.stored), hl.tensors(y)):
            assert torch.equal(s.to_dense(), t.to_dense()) and not s.requires_grad and s is not t
    if isinstance(y, PackedSequence): assert torch.equal(y.batch_sizes, make(x).batch_sizes)


def test_detach_false_is_the_layers_own_tensor(x):
    net = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid())
    with hl.hook_output(net[0], detach=False) as h:
        y = net(x)
        (g,) = torch.autograd.grad(y.sum(), h.stored)
        torch.testing.assert_close(g, (y*(1 - y)).detach())


def test_detach_false_says_when_it_was_overwritten(x):
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
    with hl.hook_output(net[0], detach=False) as h:
        net(x)
        with pytest.warns(HookWarning, match="changed in place"): h.stored


def test_inference_mode_and_vmap(x):
    layer = nn.Linear(4, 4)
    with hl.hook_output(layer) as h:
        with torch.inference_mode(): layer(x)
        h.stored.requires_grad_().sum().backward()
        torch.vmap(layer)(x.detach())
        assert h.stored.shape == (2, 4) and h.stored.sum().isfinite()
        torch.func.grad(lambda x: layer(x).sum())(x.detach())
        assert h.stored.sum().isfinite()


# 4. Each call counts

def test_calls_of_a_pass(net, x):
    with hl.hook_outputs(net, names="*") as hooks:
        for _ in range(3): net(x)
        assert [h.n_calls for h in hooks] == [1, 2, 2] and len(hooks["b"].calls) == 2
        assert torch.equal(hooks["b"].calls[1], net.b(x)) and torch.equal(hooks["b"].stored, hooks["b"].calls[-1])
        hooks.clear()
        assert hooks.stored == [None]*3


def test_keep(net, x):
    with hl.hook_output(net.b) as last, hl.hook_output(net.b, keep=3) as three, hl.hook_output(net.b, root=net) as one_pass:
        for _ in range(5): net(x)
        assert (len(last.calls), len(three.calls), len(one_pass.calls)) == (1, 3, 2)
        assert (last.n_calls, three.n_calls, one_pass.n_calls) == (10, 10, 2)
        for _ in range(5): net.b(x)  # outside any pass: never grows
        assert len(one_pass.calls) == 1


def test_a_layer_that_did_not_run_has_no_value(x):
    class Sometimes(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x, both): return self.b(self.a(x)) if both else self.a(x)

    net = Sometimes()
    with hl.hook_outputs(net, names="*") as hooks:
        net(x, True)
        net(x, False)
        assert hooks.by_name["b"] is None and hooks.by_name["a"] is not None


def test_two_forwards_before_one_backward(net, x):
    with hl.Hooks(net, lambda m, gi, go: go[0], is_forward=False, names="a") as hooks:
        for _ in range(3):  # passes, as in training
            y1, y2 = net(x), net(x*2)
            (y1.sum() + 10*y2.sum()).backward()
            first, second = hooks["a"].calls
            assert second.abs().sum() > 5*first.abs().sum()


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_is_not_another_call(net, x, reentrant):
    model = Checkpointed(net, reentrant)
    before = step(model, x)
    with hl.hook_outputs(model, names="net.*") as forward, hl.hook_outputs(model, names="net.*", grad=True) as backward:
        assert all_equal(step(model, x), before)
        assert [h.n_calls for h in forward] == [h.n_calls for h in backward] == [1, 2, 2]


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpointed_root(net, x, reentrant):
    with hl.hook_outputs(net, names="*") as forward, hl.hook_outputs(net, names="*", grad=True) as backward:
        checkpoint(net, x, use_reentrant=reentrant).sum().backward()
        assert [h.n_calls for h in forward] == [h.n_calls for h in backward] == [1, 2, 2]


# 5. Gradients are right

def test_the_layers_own_share(net, x):
    theirs, ours = {}, {}
    plain = nn.Sequential(net.a, net.b)

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = plain

        def forward(self, x): return x + self.f(x)

    model = Residual()
    handles = [m.register_full_backward_hook(lambda m, gi, go, n=n: theirs.__setitem__(n, (gi[0], go[0]))) for n, m in hl.layers(model).items()]
    model(x).pow(2).sum().backward()
    for handle in handles: handle.remove()
    with hl.Hooks(model, lambda m, gi, go: (gi[0], go[0]), is_forward=False, names="*") as hooks:
        model(x).pow(2).sum().backward()
        ours = hooks.by_name
    for name, (gi, go) in theirs.items():
        torch.testing.assert_close(ours[name], (gi, go), rtol=0, atol=1e-6)
    assert not torch.allclose(ours["f"][0], x.grad)


def test_gradients_of_containers_and_keyword_arguments(x):
    layer = Returns(lambda x, scale, flag=False: {"a": x*scale, "b": (x*scale).sum(), "n": 3})
    with hl.Hook(layer, lambda m, args, kwargs, out: (args, kwargs, out), is_forward=False, with_kwargs=True) as h:
        scale = torch.tensor(2., requires_grad=True)
        out = layer(x, scale=scale, flag=True)
        (out["a"].sum() + out["b"]).backward()
        args, kwargs, grads = h.stored
    assert torch.equal(args[0], torch.full((2, 4), 4.)) and torch.allclose(kwargs["scale"], 2*x.sum()) and kwargs["flag"] is None
    assert torch.equal(grads["a"], torch.ones(2, 4)) and grads["b"] == 1


def test_no_deprecated_api(net, x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ResourceWarning)  # of what an earlier test has left to be collected
        with hl.Hooks(net, lambda m, gi, go: gi, is_forward=False, names="*"): step(net, x.detach().requires_grad_())
        with hl.Hooks(net, lambda m, gi, go: gi, is_forward=False, names="*") as hooks:
            net(x.detach()).sum().backward()  # the model's own input needs no gradient
            assert hooks["a"].stored == (None,)


# 6. Keyword arguments

def test_keyword_arguments(x):
    layer = Returns(lambda *, x: x*2)
    with hl.Hook(layer, lambda m, args, kwargs, out: kwargs["x"], with_kwargs=True) as h:
        layer(x=x)
        assert torch.equal(h.stored, x)


# 7. Silence is reported

@pytest.mark.parametrize("context", [
    lambda net: hl.hook_output(net.a), lambda net: hl.hook_outputs([net.a, net.b]), lambda net: hl.hook_outputs(net, names="*")])
def test_silence_is_reported_once(net, context):
    with pytest.warns(HookWarning) as caught:
        with context(net): pass
    assert len(caught) == 1 and "never called" in str(caught[0].message)


def test_no_warning_on_top_of_an_exception(net):
    with pytest.raises(ZeroDivisionError):
        with hl.hook_output(net.a): 1/0
    with pytest.raises(ZeroDivisionError):
        hooks = hl.hook_outputs(net, names="*")
        try: 1/0
        finally: hooks.remove()


def test_reasons_for_silence(x):
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    with pytest.warns(HookWarning, match="out_proj.*never called"):
        with hl.hook_outputs(attention, names="*"): attention(x[None], x[None], x[None])
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with pytest.warns(HookWarning, match="no gradient reached it"):
        with hl.hook_outputs(net, grad=True): net(x)
    with pytest.warns(HookWarning, match=r"m.forward\(x\)"):
        with hl.hook_output(net[0]): net[0].forward(x)


# 9. Real models

def test_copies_and_pickles_carry_no_live_hook(net, x):
    seen = []
    hooks = hl.Hooks(net, lambda m, i, o: seen.append(m), detach=False, names="*")
    grads = hl.hook_outputs(net, names="*", grad=True, detach=False)
    net(x).sum().backward()
    seen.clear()
    buffer = io.BytesIO()
    torch.save(net, buffer)
    buffer.seek(0)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), torch.load(buffer, weights_only=False), copy.deepcopy(copy.deepcopy(net))):
        assert torch.equal(twin(x), net(x)) and not hl.hooks_on(twin)
        assert not any(m in list(twin.modules()) for m in seen)
        twin(x).sum().backward()
    twin = copy.deepcopy(hooks)
    assert twin.removed and not hooks.removed
    twin.remove()
    assert n_hooks(net) > 0
    hooks.remove()
    grads.remove()


def test_wrapped_models_have_plain_names(net, x):
    with hl.hook_outputs(nn.DataParallel(net), names=["a", "b"]) as hooks:
        net(x)
        assert list(hooks.by_name) == ["a", "b"]


def test_meta_and_autocast(x):
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with hl.hook_outputs(net) as hooks:
        with torch.autocast("cpu", dtype=torch.bfloat16): net(x)
        assert hooks[0].stored.dtype == torch.bfloat16
    net.to("meta")
    with hl.hook_outputs(net) as hooks:
        net(x.to("meta"))
        assert hooks.stored[0].shape == (2, 4) and hooks.stored[0].is_meta


class NoCopies(torch.Tensor):
    "What another library may make: a tensor that cannot be copied."
    @classmethod
    def __torch_function__(cls, f, types, args=(), kwargs=None):
        if f in (torch.Tensor.clone, torch.Tensor.detach): raise NotImplementedError("no copies of this")
        return super().__torch_function__(f, types, args, kwargs or {})


class As(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, x): return x.as_subclass(self.kind)


@pytest.mark.parametrize("hook", [hl.hook_outputs, lambda net, **how: hl.Hooks(net, lambda m, i, o: o.mean(), **how)])
def test_what_cannot_be_looked_at_is_left_alone(x, hook):
    "It does not stop the model, it is said once, and the other layers are seen."
    net = nn.Sequential(nn.Linear(4, 4), As(NoCopies), As(torch.Tensor), nn.Linear(4, 2))
    plain = net(x)
    with warnings.catch_warnings(record=True) as said, hook(net, names=["1", "3"]) as hooks:
        warnings.simplefilter("always")
        for _ in range(3): y = net(x)
    assert torch.equal(y, plain) and hooks["1"].stored is None and hooks["3"].stored is not None
    assert [w.category for w in said] == [HookWarning]
    assert str(said[0].message).startswith("1: what it was given or returned cannot be looked at, and is left alone (NotImplementedError: no copies")


def test_a_nested_tensor_can_be_stored_and_shown():
    layer = Returns(lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))
    with hl.hook_output(layer) as h:
        layer()
        assert h.stored.is_nested and "2 parts" in repr(h)


def test_threads(net, x):
    with hl.hook_output(net.b, keep=10_000) as h:
        workers = [threading.Thread(target=lambda: [net(x.detach()) for _ in range(50)]) for _ in range(4)]
        for w in workers: w.start()
        for w in workers: w.join()
        assert len(h.calls) == 400


# 10. Errors help

def test_errors_say_what_to_do(net):
    with pytest.raises(LookupError, match="act"): hl.hook_outputs(net, names="atc")
    with pytest.raises(TypeError, match="names="): hl.hook_outputs(net)
    with pytest.raises(TypeError, match="function of"): hl.Hook(net.a, None)
    with pytest.raises(TypeError, match="scripted"): hl.hook_output(torch.jit.script(nn.Linear(2, 2)))
    exported = torch.export.export(nn.Sequential(nn.Linear(4, 4)), (torch.ones(1, 4),)).module()
    with pytest.raises(TypeError, match="exported"): hl.hook_outputs(exported, names="*")
    with pytest.raises(TypeError, match="hook the layers in it"): hl.hook_output(nn.ModuleList([nn.Linear(2, 2)]))
    with pytest.raises(ValueError, match="not part of the model"): hl.hook_outputs([nn.Linear(2, 2)], root=net)
    with pytest.raises(ValueError, match="same layer"): hl.hook_outputs([net.a, net.a])
    with pytest.raises(ValueError, match="no layers"): hl.hook_outputs([])
    with pytest.raises(ValueError, match="no layers"): hl.hook_outputs(net, names=[])
    with pytest.raises(ValueError, match="keep"): hl.hook_output(net.a, keep=0)
    with pytest.raises(ValueError, match="forward_pre"): hl.Hook(net.a, print, kind="sideways")

    class Learner: model = net
    with pytest.raises(TypeError, match=r"\.model"): hl.hook_outputs(Learner())

    with hl.hook_outputs(net, names="*") as hooks:
        with pytest.raises(LookupError, match="there are hooks on"): hooks["c"]
        net(torch.ones(1, 4))


def test_hooks_is_a_collection(net, x):
    with hl.hook_outputs({"first": net.a, "second": net.b}) as hooks:
        net(x)
        assert len(hooks) == 2 and [h.name for h in hooks] == ["first", "second"] and hooks[1] is hooks["second"]
        assert hooks[0].hook is not None and "first: Linear" in repr(hooks)


def test_a_sequential_has_names_for_its_items(x):
    net = nn.Sequential(OrderedDict(body=nn.Linear(4, 4), head=nn.Linear(4, 2)))
    with hl.hook_outputs(net) as hooks:
        net(x)
        assert list(hooks.by_name) == ["body", "head"] and len(hooks) == 2


@pytest.mark.parametrize("call", [hl.hook_outputs, lambda m, names: hl.Hooks(m, print, True, names)])
def test_names_in_the_place_of_detach_are_refused(call):
    "Taken for True, they would hook all layers, or other ones than were asked for."
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    with pytest.raises(TypeError, match="names="): call(net, ["0"])
    assert not hl.hooks_on(net)


def test_rows_of_hooks_can_be_compared():
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    before = hl.hooks_on(net)
    with hl.hook_outputs(net):
        net(torch.ones(1, 2))
        rows = hl.hooks_on(net)
        assert rows == hl.hooks_on(net) and all(row not in before for row in rows) and len({*rows}) == len(rows) > 1


# 12. Containers that cannot be made again, and tensors that cannot be copied

@dataclass
class Answer(OrderedDict):
    "A dict with fields, of which those that are None are no items; one of them must be given, as in models of transformers."
    loss: Tensor | None = None
    logits: Tensor = None
    scores: Tensor = None

    def __init__(self, logits, loss=None, scores=None):
        super().__init__()
        for name, value in (("loss", loss), ("logits", logits), ("scores", scores)):
            object.__setattr__(self, name, value)
            if value is not None: super().__setitem__(name, value)

    def __setitem__(self, name, value):
        super().__setitem__(name, value)
        object.__setattr__(self, name, value)


class ReadOnly(Mapping):
    def __init__(self, **items): self._items = items
    def __getitem__(self, name): return self._items[name]
    def __iter__(self): return iter(self._items)
    def __len__(self): return len(self._items)


class Frozen(dict):
    def __setitem__(self, name, value): raise TypeError("frozen")


class Padded(list):
    def __init__(self, items, *, pad): super().__init__([*items, pad])


def endless(a, b):
    x = [a, b]
    x.append(x)
    return x


odd = {"MappingProxyType": lambda a, b: MappingProxyType({"a": a, "b": b}), "Mapping": lambda a, b: ReadOnly(a=a, b=b),
       "dict that refuses": lambda a, b: Frozen(a=a, b=b), "tuple": Twins, "list": lambda a, b: Padded([a], pad=b),
       "ModelOutput": lambda a, b: Answer(a, scores=b)}


class Makes(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.make, self.a, self.b = make, nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, x): return self.make(self.a(x), self.b(x))


class Takes(nn.Module):
    def forward(self, pair):
        a, b = pair.values() if isinstance(pair, Mapping) else pair[:2]
        return a*2 + b.detach()  # so that nothing comes for b


def odd_net(make):
    torch.manual_seed(0)
    return nn.Sequential(Makes(make), Takes())


def odd_step(net, x): return [t for t in step(net, x) if t is not None]


kinds = "forward", "forward_pre", "backward", "backward_pre"


@pytest.mark.parametrize("make", [*odd.values(), endless], ids=[*odd, "endless"])
@pytest.mark.parametrize("kind", [*kinds, *[f"global {kind}" for kind in kinds]])
@pytest.mark.parametrize("detach", [True, False])
def test_a_look_at_an_odd_container_stops_no_model(make, kind, detach, x):
    model = odd_net(make)
    before, seen = odd_step(model, x), []
    def see(m, *given): seen.append((type(m), given))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "^0.b: ran, but no gradient reached it")  # and it did not need one
        hooks = hl.global_hook(see, kind.split()[1], detach=detach) if " " in kind else hl.Hooks(model, see, kind=kind, detach=detach, names="*")
        with hooks: assert all_equal(before, odd_step(model, x))
    assert {m for m, _ in seen} - {nn.Sequential} == {Makes, Takes, nn.Linear}


@pytest.mark.parametrize("make", odd.values(), ids=odd)
def test_what_is_in_an_odd_container_is_seen(make, x):
    model = odd_net(make)
    with hl.hook_output(model[0]) as h, hl.hook_output(model[0].a) as a, hl.hook_output(model[0].b) as b: odd_step(model, x)
    assert all_equal(hl.tensors(h.stored), [a.stored, b.stored])
    def keep(m, grad_in, grad_out): return grad_out
    for options in ({"kind": "backward"}, {"kind": "backward_pre"}):
        f = keep if options["kind"] == "backward" else lambda m, grad_out: grad_out
        with hl.Hook(model[0], f, **options) as h, hl.hook_output(model[0].a, grad=True) as a: odd_step(model, x)
        assert all_equal(hl.tensors(h.stored), a.stored), "nothing came for b"


@pytest.mark.parametrize("make", odd.values(), ids=odd)
def test_all_that_looks_takes_an_odd_container(make, x):
    model = odd_net(make)
    before = odd_step(model, x)
    for options in ({}, {"detach": True}):
        found = hl.FeatureExtractor(model, ["0", "0.a", "0.b"], **options)(x)
        assert all_equal(hl.tensors(found["0"]), [found["0.a"], found["0.b"]])
    with hl.find_nan(model), hl.Timeline(model) as t: assert all_equal(before, odd_step(model, x))
    assert [e.name for e in t.rows if e.kind == "forward"] == ["0.a", "0.b", "0", "1", "(model)"]
    assert hl.execution_order(model, x) == ["0.a", "0.b", "0", "1"]


@pytest.mark.parametrize("look", [hl.find_nan, hl.Timeline])
def test_all_that_looks_takes_a_container_in_itself(look, x):
    model = odd_net(endless)
    before = odd_step(model, x)
    with look(model): assert all_equal(before, odd_step(model, x))
    for options in ({}, {"detach": True}):
        found = hl.FeatureExtractor(model, ["0", "0.a", "0.b", "1"], **options)(x)
        assert all_equal(found["0"][:2], [found["0.a"], found["0.b"]]) and torch.equal(found["1"], before[0])


objects = {"own class": lambda t: type("Own", (), {"t": t})(), "SimpleNamespace": lambda t: SimpleNamespace(t=t), "set": lambda t: {t},
           "UserList": lambda t: UserList([t]), "distribution": lambda t: torch.distributions.Normal(t, 1.)}


@pytest.mark.parametrize("make", objects.values(), ids=objects)
@pytest.mark.parametrize("grad", ["backward", "backward_pre"])
def test_no_gradient_is_seen_of_an_object(make, grad, x):
    class Hides(nn.Module):
        def forward(self, x): return make(x*2)
    class Shows(nn.Module):
        def forward(self, o):
            if isinstance(o, torch.distributions.Normal): return o.loc
            return o.t if hasattr(o, "t") else next(iter(o))
    model = nn.Sequential(Hides(), Shows())
    name = type(make(torch.ones(()))).__name__
    with pytest.warns(HookWarning, match=rf"^0: ran, but what it returned \({name}\) holds no tensor that can be found"):
        with hl.Hooks(model, lambda m, *given: None, kind=grad, names=["0", "1"]): model(x).sum().backward()


class Closed(Tensor):
    "Has its numbers in another tensor, and knows what a Linear needs and nothing else."
    @staticmethod
    def __new__(cls, t): return Tensor._make_wrapper_subclass(cls, t.shape, dtype=t.dtype, requires_grad=False)
    def __init__(self, t): self.inner = t

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        if op in (torch.ops.aten.t.default, torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
            return op(*[a.inner if isinstance(a, cls) else a for a in args])
        raise NotImplementedError(f"no {op}")


class Closes(nn.Module):
    def forward(self, x): return Closed(x.detach())


@pytest.mark.parametrize("detach", [True, False])
@pytest.mark.parametrize("kind", kinds)
def test_a_tensor_that_cannot_be_copied_stops_no_model_and_that_is_said_once(kind, detach, x):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), Closes(), nn.Linear(4, 2))
    before = odd_step(model, x)
    if kind == "forward_pre": hooks = hl.Hook(model[2], lambda m, i: i, kind=kind, detach=detach)
    else: hooks = hl.Hook(model[1], lambda m, *given: given[-1], kind=kind, detach=detach)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with hooks:
            for _ in range(3): assert all_equal(before[:1], odd_step(model, x)[:1])
    assert len(said) == (0 if "forward" in kind and not detach else 1), [str(w.message) for w in said]
    if "forward" in kind and detach: assert "cannot be looked at, and is left alone (NotImplementedError: no aten." in str(said[0].message)


@pytest.mark.parametrize("names,left", [(["2"], []), (["1", "2"], ["1"])])
def test_a_feature_that_cannot_be_copied_stops_no_model(names, left, x):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), Closes(), nn.Linear(4, 2))
    y, extract = model(x), hl.FeatureExtractor(model, names, detach=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(3): assert torch.equal(extract(x)["2"], y)
    assert len(said) == len(left) and all("1: its output cannot be copied" in str(w.message) for w in said)


class Outputs(OrderedDict):
    "As the outputs of transformers' models are: a field that is None is no item, and items are never removed."
    def __post_init__(self):
        for f in dataclasses.fields(self):
            if (value := getattr(self, f.name)) is not None: self[f.name] = value

    def __setitem__(self, name, value):
        super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __setattr__(self, name, value):
        if name in self.keys() and value is not None: super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __reduce__(self):
        make, _, *rest = super().__reduce__()
        return make, tuple(getattr(self, f.name) for f in dataclasses.fields(self)), *rest

    def __delitem__(self, *args): raise TypeError("fields are not removed")
    pop = update = setdefault = __delitem__


@dataclass
class WithRequired(Outputs):
    hidden: Tensor
    second: Tensor | None = None
    third: Tensor | None = None


class GivesOutputs(nn.Module):
    def __init__(self, cls):
        super().__init__()
        self.cls, self.a, self.b = cls, nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x): return self.cls(hidden=self.a(x), second=self.b(x))


@pytest.mark.parametrize("used", ["hidden", "second"])
def test_gradients_of_a_model_output_are_one_also_where_a_required_field_has_none(used, x):
    model = GivesOutputs(WithRequired)
    with hl.hook_output(model, grad=True) as h, hl.Hook(model, lambda m, g: g, kind="backward_pre") as pre:
        model(x)[used].sum().backward()
    for stored in (h.stored, pre.stored):
        assert type(stored) is WithRequired and list(stored) == ["hidden", "second"] and stored.third is None
        for name in ("hidden", "second"):
            assert stored[name] is getattr(stored, name)
            if name == used: assert torch.equal(stored[name], torch.ones(2, 4))
            else: assert stored[name] is None


def test_a_model_output_keeps_the_order_of_its_fields():
    one = WithRequired(torch.ones(1), torch.ones(2), torch.ones(3))
    nones = iter([None, *hl.tensors(one)[1:]])
    made = map_tensors(lambda t: next(nones), one)
    again = map_tensors(torch.neg, made)
    assert type(again) is WithRequired and list(again) == ["hidden", "second", "third"]
    assert again.hidden is None and [t.numel() for t in hl.tensors(again)] == [2, 3]


# 13. The model itself, by its empty name

def test_the_model_itself_has_the_empty_name_everywhere(net, x):
    assert hl.layers(net, "") == {"": net} and "" not in hl.layers(net, "*", nn.Module, lambda name, m: True)
    assert list(hl.layers(torch.nn.DataParallel(net), "")) == [""] and hl.layers(nn.DataParallel(net), "")[""] is net
    first = next(iter(hl.layers(net)))
    assert list(hl.layers(net, first, "")) == ["", first]
    with pytest.raises(LookupError, match="'nowhere'"): hl.layers(net, "", "nowhere")
    with hl.hook_outputs(net, names=["", first]) as h, hl.hook_outputs(net, names="", grad=True) as g:
        for _ in range(2): out = net(x)
        out.sum().backward()
    assert torch.equal(h.by_name[""], out) and h[""].n_calls == 1 and torch.equal(g[""].stored[0], torch.ones_like(out))
    assert repr(h[""]).startswith("Hook (model): ") and not hl.hooks_on(net)
    assert torch.equal(hl.FeatureExtractor(net, [""])(x)[""], out)
    with hl.edit_output(net, lambda m, given, out: out*0, names=""): assert not net(x).any()
    with hl.parameter_hooks(net, names="") as each: net(x).sum().backward()
    assert [h.name for h in each] == [name for name, p in net.named_parameters() if p.requires_grad]
    with pytest.warns(HookWarning, match=r"^\(model\): hooked, but never called"), hl.hook_outputs(net, names=""): pass


# 14. How many calls are kept

def test_keep_counts_within_a_pass_where_a_model_is_the_root_and_over_all_calls_without_one(x):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    with (hl.hook_outputs(model, names="1", keep=50) as by_name,
          hl.hook_outputs(hl.layers(model, "1", "2"), keep=50) as all_passes,
          hl.Hook(model[1], lambda m, i, o: o, keep=50) as one, hl.hook_calls(model, torch.relu, keep=50) as calls):
        for i in range(60): model(x + i)
    assert len(by_name["1"].calls) == 1 and len(calls) == 1  # a pass is a call of the model
    assert list(all_passes.by_name) == ["1", "2"] and len(one.calls) == 50
    for name in ("1", "2"): assert len(all_passes[name].calls) == 50
    assert torch.equal(all_passes["1"].calls[0], model[:2](x + 10)) and all_equal(all_passes["1"].calls, one.calls)


# 15. Layers that a custom backward calls

class RunAgain(torch.autograd.Function):
    "Keeps the input alone, and runs the layer in the backward pass once more, as reversible networks and adjoints do."
    @staticmethod
    def forward(ctx, layer, x, *weights):
        ctx.layer = layer
        ctx.save_for_backward(x)
        return layer(x).detach()

    @staticmethod
    def backward(ctx, g):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad(): out = ctx.layer(x)
        return None, *torch.autograd.grad(out, [x, *ctx.layer.parameters()], g)


class Reversible(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.inner = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x): return RunAgain.apply(self.inner, self.first(x), *self.inner.parameters())


def test_a_layer_that_a_custom_backward_calls_is_taken_for_a_rerun(x):
    model, edited = Reversible(), []
    plain = nn.Sequential(model.first, model.inner)
    plain(x).sum().backward()
    right, rights = [p.grad.clone() for p in model.parameters()], {}
    with hl.hook_outputs(plain, names="*", grad=True) as grads: plain(x).sum().backward()
    rights = {"first": grads["0"].stored, "inner": grads["1"].stored, "inner.0": grads["1.0"].stored}
    model.zero_grad()
    with (hl.hook_outputs(model, names="*") as h, hl.hook_outputs(model, names="*", grad=True) as g,
          hl.Timeline(model) as timeline, hl.hook_calls(model, torch.tanh) as calls):
        model(x).sum().backward()
    assert [hook.n_calls for hook in h] == [1, 1, 1, 1] and len(calls) == 1
    for name, gradient in rights.items(): assert all_equal(g[name].stored, gradient)
    assert all_equal(right, [p.grad for p in model.parameters()])
    assert {row.name for row in timeline.rows if row.again} == {"inner", "inner.0", "inner.1"}
    with hl.edit_output(model, lambda m, given, out: edited.append(1), names="inner.1"): model(x).sum().backward()
    assert len(edited) == 2


def test_what_a_custom_backward_calls_is_not_in_the_statistics(x):
    class Larger(torch.autograd.Function):
        forward = staticmethod(lambda ctx, layer, x: (setattr(ctx, "layer", layer), layer(x).detach())[1])
        backward = staticmethod(lambda ctx, g: (None, ctx.layer(g*1000)))

    model = Reversible()
    model.forward = lambda x: Larger.apply(model.inner[0], model.first(x))
    with hl.ActivationStats(modules=["inner.0"]).on(model) as stats:
        model(x).sum().backward()
        stats.step()
    assert stats.stats[0][0]["mean"] == pytest.approx(model.inner[0](model.first(x)).mean().item(), abs=1e-6)


def test_a_layer_that_only_a_custom_backward_calls_is_reported(x):
    class Adjoint(torch.autograd.Function):
        forward = staticmethod(lambda ctx, layer, x: (setattr(ctx, "layer", layer), x*1)[1])
        @staticmethod
        def backward(ctx, g): return None, ctx.layer(g)

    model = Reversible()
    model.forward = lambda x: Adjoint.apply(model.inner, model.first(x))
    with pytest.warns(HookWarning, match="^inner: hooked, but never called"), hl.hook_outputs(model, names="inner"):
        model(x).sum().backward()
