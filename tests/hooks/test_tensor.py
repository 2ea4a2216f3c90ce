"""Hooks on tensors and parameters, clipped gradients, and the kinds that are not on a layer's call."""
import copy
import gc
import io
import pickle
import sys
import threading
import warnings
import weakref
from contextlib import ExitStack

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

import hooklab as hl
from hooklab import HookWarning
from support.processes import started

pytestmark = pytest.mark.filterwarnings("error::hooklab.hooks.copies.HookWarning")


class Net(nn.Module):
    "Residual, in-place, with a shared parameter and an unused one."
    def __init__(self):
        super().__init__()
        self.a, self.act, self.b, self.unused = nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4), nn.Linear(4, 4)
        self.b.weight = self.a.weight

    def forward(self, x): return x + self.b(self.act(self.a(x) + 1))


def leaf(*numbers, **options): return torch.tensor(numbers, requires_grad=True, **options)


def gradients(net, x, n=1):
    net.zero_grad(set_to_none=True)
    for _ in range(n): net(x).pow(2).sum().backward()
    return {name: p.grad if p.grad is None else p.grad.clone() for name, p in net.named_parameters()}


def same(a, b): return a.keys() == b.keys() and all(s is t or torch.equal(s, t) for (s, t) in ((a[k], b[k]) for k in a))


def nothing_left(net):
    "Looks where torch keeps hooks, not where hooklab lists them."
    on_layers = any(getattr(m, hooks) for m in net.modules() for hooks in vars(m) if hooks.endswith("_hooks"))
    return not on_layers and not global_hooks() and not any(p._backward_hooks or p._post_accumulate_grad_hooks for p in net.parameters())


def global_hooks():
    module = torch.nn.modules.module
    return [f for name in dir(module) if name.startswith("_global") and isinstance(getattr(module, name), dict) for f in getattr(module, name).values()]


def warning_of(f):
    "The only HookWarning of `f`."
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        f()
    (w,) = [w for w in caught if issubclass(w.category, HookWarning)]
    return str(w.message)


# One tensor

def test_a_chain_of_hooks():
    v, seen = leaf(1., 2., 3.), []
    for f in (lambda g: g*2, lambda g: seen.append(g.tolist()), lambda g: g/2, lambda g: seen.append(g.tolist())): hl.tensor_hook(v, f)
    (v**2).sum().backward()
    assert seen == [[4, 8, 12], [2, 4, 6]] and v.grad.tolist() == [2, 4, 6]


def test_vector_jacobian_product_and_removal():
    v = leaf(0., 0., 0.)
    h = hl.tensor_hook(v, lambda g: g**2)
    v.backward(torch.tensor([1., 2., 3.]))
    assert v.grad.tolist() == [1, 4, 9] and h.n_calls == 1
    h.remove()
    h.remove()
    assert h.removed and not v._backward_hooks
    v.backward(torch.tensor([1., 2., 3.]))
    assert v.grad.tolist() == [2, 6, 12]


def test_gradients_add_up_until_they_are_zeroed():
    v = torch.arange(6.).view(2, 3).requires_grad_()
    out, once = (v*v*v).flatten(), 3*torch.arange(6.).view(2, 3)**2
    with hl.tensor_hook(v) as h:
        for times in 1, 2:
            out.backward(torch.ones(6), retain_graph=True)
            assert torch.equal(v.grad, times*once) and torch.equal(h.stored, once)
        v.grad.zero_()
        out.backward(torch.ones_like(out))
        assert torch.equal(v.grad, h.stored) and h.n_calls == 3


def test_in_place_work_reaches_nobody_else():
    a, b, ones = leaf(0., 0.), leaf(0., 0.), torch.ones(2)
    with hl.tensor_hook(a, lambda g: g.clamp_(-0.1, 0.1)), hl.tensor_hook(b, lambda g: g.mul_(3)): (a + b).backward(ones)
    assert torch.equal(a.grad, torch.full((2,), 0.1)) and b.grad.tolist() == [3, 3] and ones.tolist() == [1, 1]


def test_unreturned_in_place_work_is_reported():
    a = leaf(1.)

    def run():
        with hl.tensor_hook(a, lambda g: [g.mul_(2)] and None): a.sum().backward()
    assert "did not return" in warning_of(run) and a.grad == 1


@pytest.mark.parametrize("f, error, words", [
    (lambda g: 3.0, TypeError, "returned a float"), (lambda g: g.sum(), ValueError, "like the one it got, 2 float32"),
    (lambda g: g.double(), ValueError, "float64"), (lambda g: g.to_sparse(), ValueError, "sparse"), (lambda g: g.to("meta"), ValueError, "meta")])
def test_what_a_function_may_return(f, error, words):
    a = leaf(1., 2.)
    with pytest.raises(error, match=words), hl.tensor_hook(a, f): a.sum().backward()
    assert not a._backward_hooks and a.grad is None


def test_errors_say_what_to_do(net):
    with pytest.raises(ValueError, match="requires_grad_"): hl.tensor_hook(torch.ones(2))
    with pytest.raises(ValueError, match="requires_grad_"): hl.post_accumulate(torch.ones(2))
    with pytest.raises(ValueError, match="tensor_hook"): hl.post_accumulate(leaf(1.)*2)
    with pytest.raises(TypeError, match="Hook\\("): hl.tensor_hook(nn.Linear(1, 1))
    with pytest.raises(TypeError, match="a function of the gradient"): hl.tensor_hook(leaf(1.), 3)
    with pytest.raises(ValueError, match="all, any"): hl.multi_grad_hook([leaf(1.)], print, mode="some")
    with pytest.raises(ValueError, match="no tensors"): hl.multi_grad_hook([], print)
    with pytest.raises(ValueError, match="requires a gradient"): hl.parameter_hooks(net.requires_grad_(False))
    with pytest.raises(TypeError, match="torch.nn.Module"): hl.parameter_hooks([net])
    scripted = torch.jit.script(nn.Linear(1, 1))
    for f in hl.parameter_hooks, lambda m: hl.gradient_clipper(m, 1.0), lambda m: hl.state_dict_hook(m, print):
        with pytest.raises(TypeError, match="scripted"): f(scripted)
    with pytest.raises(LookupError, match="act"): hl.parameter_hooks(net.requires_grad_(), names="atc")
    with pytest.raises(ValueError, match="post_accumulate"): hl.parameter_hooks(net, kind="forward")
    assert nothing_left(net)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["function", "body", "graph"])
def test_nothing_is_left_after_an_error(net, x, error, where):
    before, ones = gradients(net, x), {n: p.detach().clone() for n, p in net.named_parameters()}

    def f(*given):
        if where == "function": raise error

    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x): return x.clone()
        @staticmethod
        def backward(ctx, g): raise error

    p = net.a.bias
    for hook in (lambda: hl.tensor_hook(p, f), lambda: hl.post_accumulate(p, f), lambda: hl.multi_grad_hook([p, net.b.bias], f),
                 lambda: hl.multi_grad_hook([p, net.b.bias], f, mode="any"), lambda: hl.parameter_hooks(net, f),
                 lambda: hl.parameter_hooks(net, f, kind="post_accumulate"), lambda: hl.clipped_gradients(net, 1.0)):
        with pytest.raises(error), hook():
            net(Broken.apply(x) if where == "graph" else x).sum().backward()
            raise error
        assert nothing_left(net)
    assert same(gradients(net, x), before) and all(torch.equal(p, ones[n]) for n, p in net.named_parameters())


def test_attaching_is_all_or_nothing(net, monkeypatch):
    frozen = [leaf(1.), torch.ones(1), leaf(2.)]
    with pytest.raises(ValueError, match="requires_grad_"): hl.multi_grad_hook(frozen, print)
    assert not frozen[0]._backward_hooks

    def third_fails(t, f, n=[0], register=torch.Tensor.register_hook):
        n[0] += 1
        return register(t, f) if n[0] < 3 else 1/0

    monkeypatch.setattr(torch.Tensor, "register_hook", third_fails)
    with pytest.raises(ZeroDivisionError): hl.parameter_hooks(net)
    assert nothing_left(net)
    monkeypatch.setattr(nn.Module, "register_load_state_dict_post_hook", lambda *args: 1/0)
    with pytest.raises(ZeroDivisionError): hl.parameter_hooks(net)
    assert nothing_left(net)


def test_a_hook_does_not_keep_the_graph():
    gc.disable()
    try:
        x = leaf(1., 2.)
        y = x*2
        h, graph = hl.tensor_hook(y), weakref.ref(y)
        y.sum().backward()
        del y
        assert graph() is None and h.stored.tolist() == [1, 1]
    finally: gc.enable()


def test_before_and_after_an_in_place_operation():
    x, seen = leaf(1., 1.), []
    y = x*2
    early = hl.tensor_hook(y, lambda g: seen.append(("early", g.tolist())))
    y.mul_(3)
    with hl.tensor_hook(y, lambda g: seen.append(("late", g.tolist()))): y.sum().backward(retain_graph=True)
    assert seen == [("late", [1, 1]), ("early", [3, 3])]
    early.remove()
    y.sum().backward()
    assert len(seen) == 2


def test_a_parametrized_weight_is_reported():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    h = hl.tensor_hook(layer.weight)
    layer(torch.ones(1, 2)).sum().backward()
    assert "parametrizations" in warning_of(h.remove)


def test_silence():
    a = leaf(1.)

    def run():
        with hl.tensor_hook(a, name="a"): pass
    assert warning_of(run).startswith("a: no gradient arrived")
    hl.tensor_hook(a).remove()  # it is unknown whether backward was called, and removing at once is no mistake
    with pytest.raises(ZeroDivisionError), hl.tensor_hook(a): 1/0
    h = hl.tensor_hook(a, name="a")
    a.grad = torch.ones(1)  # as sharding does: torch calls no hook
    assert "bypassed the hook (it was written to .grad, or is of a sharded" in warning_of(h.remove)
    hl.tensor_hook(a).remove()  # this gradient is older than the hook
    b = leaf(1.)
    h = hl.post_accumulate(b, name="b")
    b.grad = torch.ones(1)
    said = warning_of(h.remove)
    assert "bypassed the hook (it was written to .grad)" in said and "post_accumulate" not in said


def test_double_backward_goes_through_the_function():
    x = leaf(2., dtype=torch.double)
    with hl.tensor_hook(x, lambda g: g*g) as h:
        (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        assert g == 144
        g.sum().backward()
        assert h.n_calls == 2
    plain = leaf(2., dtype=torch.double)
    ((3*plain**2)**2).sum().backward()
    assert x.grad == plain.grad**2  # the second pass went by the hook as well


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.complex64, torch.float64])
def test_dtypes(dtype):
    v = torch.ones(3, dtype=dtype, requires_grad=True)
    with hl.tensor_hook(v, lambda g: g*2), hl.tensor_hook(v) as h, hl.post_accumulate(v) as after:
        (v*v).abs().sum().backward()
        assert h.stored.dtype == after.stored.dtype == dtype and torch.equal(h.stored, v.grad) and torch.equal(after.stored, v.grad)
    assert torch.equal(v.grad, torch.full((3,), 4, dtype=dtype))


def test_sparse_gradients():
    e = nn.Embedding(5, 2, sparse=True)
    with hl.tensor_hook(e.weight, lambda g: g.mul_(3)), hl.tensor_hook(e.weight) as h:
        e(torch.tensor([1, 1, 4])).sum().backward()
        assert torch.equal(h.stored.to_dense(), e.weight.grad.to_dense())
    assert e.weight.grad.is_sparse and e.weight.grad.to_dense()[1].tolist() == [6, 6]


# After accumulation

def test_post_accumulate_sees_the_sum():
    v, seen = leaf(0., 0.), []
    with hl.post_accumulate(v, lambda p: seen.append(p.grad.tolist()) or 7), hl.post_accumulate(v) as h:
        for batch in torch.tensor([[1., 2.], [3., 4.]]): (v*batch).sum().backward()
        assert seen == [[1, 2], [4, 6]] and h.stored.tolist() == [4, 6] and h.n_calls == 2
        torch.autograd.grad((v*2).sum(), v)
        assert h.n_calls == 2  # nothing was accumulated
        v.grad.zero_()
        assert h.stored.tolist() == [4, 6]
    assert not v._post_accumulate_grad_hooks


def test_the_optimizer_in_the_backward_pass(net, x):
    twin = copy.deepcopy(net)
    gradients(twin, x)
    torch.optim.SGD(twin.parameters(), lr=0.1).step()

    def step(name, p):
        with torch.no_grad(): p.sub_(p.grad, alpha=0.1)
        p.grad = None
    with hl.parameter_hooks(net, step, kind="post_accumulate", quiet=True): gradients(net, x)
    for a, b in zip(net.parameters(), twin.parameters()): torch.testing.assert_close(a, b)


# Several at once

def test_all_and_any():
    a, b, c, every, first = leaf(1., 2.), leaf(3., 4.), leaf(1.), [], []
    with hl.multi_grad_hook([a, b, c], every.append), hl.multi_grad_hook([a, b, c], first.append, mode="any"):
        (a*b).sum().backward()
        (2*c).sum().backward()
    assert [[None if g is None else g.tolist() for g in gs] for gs in every] == [[[3, 4], [1, 2], None], [None, None, [2]]]
    assert len(first) == 2 and first[0].tolist() in ([3, 4], [1, 2]) and first[1].tolist() == [2]


def test_gradients_of_several_are_copies():
    a, b, c, ones = leaf(0., 0.), leaf(0., 0.), leaf(0., 0.), torch.ones(2)
    with hl.multi_grad_hook([a, b], lambda gs: gs[0].zero_()), hl.multi_grad_hook([c], lambda g: g.zero_(), mode="any"): (a + b + c).backward(ones)
    assert a.grad.tolist() == b.grad.tolist() == c.grad.tolist() == ones.tolist() == [1, 1]


def test_removed_in_the_middle_of_a_pass():
    a, seen = leaf(1., 2.), []
    hidden = a*2
    hooks = hl.multi_grad_hook([a, hidden], seen.append)
    hl.tensor_hook(hidden, lambda g: hooks.remove())
    hidden.sum().backward()
    assert not seen and not a._backward_hooks


def test_gradients_that_are_asked_for_by_autograd_grad():
    a, b, seen = leaf(1.), leaf(2.), []
    with hl.multi_grad_hook({"a": a, "b": b}, seen.append): torch.autograd.grad((a*b).sum(), a)
    assert seen[0][0] == 2


def test_a_failed_pass_leaves_no_gradients_behind():
    a, hidden, fail, seen = leaf(1.), None, True, []

    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x): return x.clone()
        @staticmethod
        def backward(ctx, g):
            if fail: raise ValueError
            return g

    with hl.multi_grad_hook([a], seen.append) as hooks:
        hidden = Broken.apply(a)*2
        with pytest.raises(ValueError), hl.multi_grad_hook([hidden], seen.append) as inner: hidden.sum().backward(retain_graph=True)
        gc.collect()
        assert not seen and not inner.group.passes and not hooks.group.passes
        fail = False
        hidden.sum().backward()
    assert len(seen) == 1 and not hooks.group.passes


@pytest.mark.parametrize("reentrant", [True, False])
def test_one_call_for_a_pass_with_checkpointing(x, reentrant):
    net, seen = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)), []
    with hl.multi_grad_hook(list(net.parameters()), seen.append, mode="all") as hooks:
        checkpoint(net, x, use_reentrant=reentrant).sum().backward()
    assert len(seen) == 1 and all(torch.equal(g, p.grad) for g, p in zip(seen[0], net.parameters())) and hooks.removed


# Parameters of a model

def test_names_kinds_and_shared_parameters(net, x):
    with hl.parameter_hooks(net, quiet=True) as hooks, hl.parameter_hooks(net, kind="post_accumulate", quiet=True) as after:
        grads = gradients(net, x)
        assert [h.name for h in hooks] == [name for name, _ in net.named_parameters()] and hooks["a.weight"].n_calls == 1
        for h, g in zip(hooks, grads.values()):
            assert (h.stored is None and g is None) or torch.equal(h.stored, g) and torch.equal(after[h.name].stored, g)
        kinds = {row.kind for row in hl.hooks_on(net)}
        assert kinds == {"tensor", "post_accumulate"} and all(row.ours for row in hl.hooks_on(net))
        wrapped = torch.compile(net, backend="eager")
        with hl.parameter_hooks(wrapped, names="b") as some:
            gradients(net, x)
            assert [h.name for h in some] == ["b.weight", "b.bias"]
    assert nothing_left(net)


def test_unused_parameters_are_reported_unless_quiet(net, x):
    def run(**options):
        with hl.parameter_hooks(net, **options): gradients(net, x)
    assert warning_of(run).startswith("unused.weight, unused.bias: no gradient arrived")
    run(quiet=True)


def test_hooks_follow_a_loaded_state_dict(net, x):
    with hl.parameter_hooks(net, quiet=True) as hooks:
        state = {name: t.clone() for name, t in net.state_dict().items()}
        old = net.a.weight
        net.load_state_dict(state, assign=True)
        assert net.a.weight is not net.b.weight and not old._backward_hooks
        grads = gradients(net, x)
        for name in "a.weight", "b.weight", "a.bias": assert torch.equal(hooks[name].stored, grads[name])
    assert nothing_left(net)


def test_what_cannot_be_followed_is_reported(net, x):
    def run():
        with hl.clipped_gradients(net, 1e-3):
            gradients(net, x)
            net.a.bias = nn.Parameter(torch.ones(4))
            gradients(net, x)
    assert warning_of(run) == "a.bias: it was replaced by another parameter, which has no hook"
    net.b.bias.requires_grad_(False)

    def thaw():
        with hl.clipped_gradients(net, 1e-3):
            net.b.bias.requires_grad_()
            gradients(net, x)
    assert "b.bias: it was not trainable yet" in warning_of(thaw)
    assert nothing_left(net)


def test_remove_hooks_finds_them(net, x):
    foreign = net.a.bias.register_hook(lambda g: None)
    hl.tensor_hook(net.a.weight)
    hl.parameter_hooks(net)
    hl.state_dict_hook(net, lambda *a: None, load=True, before=True)
    assert hl.remove_hooks(net) == 1 + 5 + 1
    assert len(hl.hooks_on(net)) == 1 and not hl.hooks_on(net)[0].ours
    foreign.remove()


def test_copies_and_pickles_carry_no_live_hook(net, x):
    before, seen = gradients(net, x), []
    clipped = hl.gradient_clipper(net, 1e-3)
    for load in True, False:
        for early in True, False: hl.state_dict_hook(net, lambda *given: seen.append(1), load=load, before=early)
    buffer = io.BytesIO()
    torch.save(clipped, buffer)
    buffer.seek(0)
    for twin in copy.deepcopy(clipped), copy.deepcopy(net), pickle.loads(pickle.dumps(clipped)), torch.load(buffer, weights_only=False):
        seen.clear()
        assert type(twin) is Net and same(gradients(twin, x), before) and not any(row.ours for row in hl.hooks_on(twin))
        twin.load_state_dict(twin.state_dict())
        assert not seen
    hl.remove_hooks(net)
    assert nothing_left(net)


def loaded(model, *allowed):
    torch.save(model, buffer := io.BytesIO())
    buffer.seek(0)
    with torch.serialization.safe_globals(list(allowed)): return torch.load(buffer, weights_only=True)


@pytest.mark.parametrize("hooked", [lambda m: hl.gradient_clipper(m, 1e-3), lambda m: hl.gradient_clipper(m, 1e-3, accumulated=True),
                                    lambda m: hl.GradientCheck(m, file=[].append)])
def test_copies_and_pickles_are_those_of_a_plain_model(net, x, hooked):
    other, later = [], []
    net.register_load_state_dict_post_hook(lambda m, keys: other.append(m))
    linear = nn.Linear(2, 2)
    plain = pickle.dumps(linear)
    assert pickle.dumps(hooked(linear)) == plain
    assert hooked(net) is net
    handle = net.register_load_state_dict_post_hook(lambda m, keys: later.append(m))
    twin = copy.deepcopy(net)
    assert type(twin._load_state_dict_post_hooks) is type(nn.Linear(1, 1)._load_state_dict_post_hooks) and len(twin._load_state_dict_post_hooks) == 2
    for m in net, twin: m.load_state_dict(net.state_dict())
    assert other == later == [net, twin]  # hooks of others are in the copy, and are called as ever
    assert not any(p._backward_hooks or p._post_accumulate_grad_hooks for p in twin.parameters())
    hl.remove_hooks(net)
    net.load_state_dict(net.state_dict())
    assert len(other) == len(later) == 3
    handle.remove()
    net.load_state_dict(net.state_dict())
    assert len(other) == 4 and len(later) == 3

    model = hooked(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    twin = loaded(model, nn.Sequential, nn.Linear, nn.ReLU)
    assert not hl.hooks_on(twin) and nothing_left(twin) and all(map(torch.equal, twin.parameters(), model.parameters()))


def test_handles_of_others_work_whenever_they_were_made(net):
    seen = []
    def on(name): return net.register_load_state_dict_post_hook(lambda m, keys: seen.append(name))
    def said(): return seen.clear() or net.load_state_dict(net.state_dict()) and seen
    before = on("before")
    clipped, again = hl.clipped_gradients(net, 1.0), hl.clipped_gradients(net, 2.0)
    during = on("during")
    assert said() == ["before", "during"]
    before.remove()
    assert said() == ["during"]
    again.remove()
    clipped.remove()
    after = on("after")
    assert said() == ["during", "after"]
    with hl.clipped_gradients(net, 1.0):
        gradients(net, torch.ones(1, 4))
        assert said() == ["during", "after"]
    for handle in during, after: handle.remove()
    assert said() == []
    with hl.clipped_gradients(net, 1.0): gradients(net, torch.ones(1, 4))
    assert nothing_left(net) and not hl.hooks_on(net)


class Tagged(torch.Tensor):
    "A tensor class of another library, as for quantized weights."


@pytest.mark.filterwarnings("error")
def test_a_pickle_of_parameters_of_another_class_is_made_without_a_warning():
    net = nn.Linear(2, 2)
    net.weight = nn.Parameter(torch.ones(2, 2).as_subclass(Tagged))
    twin = pickle.loads(pickle.dumps(hl.gradient_clipper(net, 1.0)))
    assert type(twin.weight) is Tagged and not twin.weight._backward_hooks


@pytest.mark.parametrize("accumulated", [False, True])
def test_a_model_that_was_clipped_and_dropped_is_freed_at_once(accumulated):
    gc.collect()
    gc.disable()
    try:
        net = hl.gradient_clipper(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), 1.0, accumulated=accumulated)
        net(torch.ones(1, 2)).sum().backward()
        gone = [weakref.ref(net), weakref.ref(net[0]), weakref.ref(net[0].weight), weakref.ref(net[0].weight.grad)]
        del net
        assert not any(ref() is not None for ref in gone)
    finally: gc.enable()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled(net, x, backend):
    torch._dynamo.reset()
    compiled = torch.compile(net, backend=backend)
    before = gradients(compiled, x)
    with hl.parameter_hooks(compiled, quiet=True) as hooks:
        assert same(gradients(compiled, x), before) and torch.equal(hooks["a.weight"].stored, net.a.weight.grad)
    with hl.clipped_gradients(compiled, 1e-3):
        assert all(g is None or g.abs().max() <= 1e-3 for g in gradients(compiled, x).values())
    assert same(gradients(compiled, x), before)
    torch._dynamo.reset()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_inside_compiled_code(backend):
    torch._dynamo.reset()
    def f(x):
        y = x*2
        hl.tensor_hook(y, lambda g: g*2)
        return y.sin().sum()
    a, b = leaf(1., 2.), leaf(1., 2.)
    f(a).backward()
    torch.compile(f, backend=backend)(b).backward()
    assert torch.equal(a.grad, b.grad) and torch.allclose(a.grad, 4*torch.cos(2*a))
    torch._dynamo.reset()


def test_inside_torch_func():
    hooks = []
    def f(x):
        hooks.append(hl.tensor_hook(x))
        hl.tensor_hook(x, lambda g: g*3)
        return (x**2).sum()
    assert torch.func.grad(f)(torch.ones(2)).tolist() == [6, 6] and hooks[0].stored.tolist() == [2, 2]


kinds_of_hooks = st.sampled_from(["tensor", "keep", "post", "all", "any", "parameters", "after", "saved", "global", "step", "load"])


@settings(max_examples=40, deadline=None)
@given(kinds=st.lists(st.tuples(kinds_of_hooks, st.integers(0, 9)), min_size=1, max_size=6), n=st.integers(1, 2))
def test_looking_changes_no_bit(kinds, n):
    torch.manual_seed(0)
    net, x = Net(), torch.randn(2, 4)
    before = gradients(net, x, n)
    make = {"tensor": lambda: hl.tensor_hook(net.a.weight, lambda g: None), "keep": lambda: hl.tensor_hook(net.a.bias),
            "post": lambda: hl.post_accumulate(net.b.bias), "all": lambda: hl.multi_grad_hook(list(net.parameters()), lambda gs: None),
            "any": lambda: hl.multi_grad_hook(list(net.parameters()), lambda g: None, mode="any"),
            "parameters": lambda: hl.parameter_hooks(net, quiet=True), "saved": lambda: hl.saved_tensors(lambda t: t.sum()),
            "after": lambda: hl.parameter_hooks(net, lambda name, p: None, kind="post_accumulate", quiet=True),
            "global": lambda: hl.global_hook(lambda m, i, o: o, kind="backward"), "load": lambda: hl.state_dict_hook(net, print, load=True),
            "step": lambda: hl.step_hook(torch.optim.SGD(net.parameters()), print)}
    with ExitStack() as saved:  # torch's own, which nest
        for kind, _ in kinds: kind == "saved" and saved.enter_context(make[kind]())
        contexts = [(when, make[kind]().__enter__()) for kind, when in kinds if kind != "saved"]
        try: assert same(gradients(net, x, n), before)
        finally:
            for _, c in sorted(contexts, key=lambda pair: pair[0]): c.__exit__(*sys.exc_info())
    assert nothing_left(net) and same(gradients(net, x, n), before)


# What is saved

def test_saved_tensors_looks_without_harm():
    x, shapes = torch.randn(3, 2, requires_grad=True), []
    with hl.saved_tensors(lambda t: shapes.append(tuple(t.shape))): y = (x@x.T).exp()
    y.sum().backward()
    expected, g = x.grad, x.grad
    x.grad = None
    (x@x.T).exp().sum().backward()
    assert torch.equal(x.grad, expected) and g is not x.grad and (3, 3) in shapes

    with hl.saved_tensors(lambda t: None): y = x.exp()
    graph = weakref.ref(y)
    del y
    gc.collect()
    assert graph() is None


def test_saved_tensors_notices_what_torch_notices():
    x = leaf(1., 2.)
    with hl.saved_tensors(lambda t: None): y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="changed in place"): y.sum().backward()
    with pytest.raises(RuntimeError, match="in"), hl.saved_tensors(lambda t: t.add_(1)): x.exp()
    with pytest.raises(KeyboardInterrupt), hl.saved_tensors(lambda t: (_ for _ in ()).throw(KeyboardInterrupt)): x.exp()
    x.exp().sum().backward()
    assert torch.equal(x.grad, x.detach().exp())


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_saved_tensors_inside_compiled_code(net, x, backend):
    def run(changed, *pair):
        with hl.saved_tensors(*pair):
            out = net(x)
            y = out.exp()
        total = y.sum()
        if changed: y.mul_(2)
        return total

    def gradients_of(run, *given):
        net.zero_grad()
        run(*given).backward()
        return [p.grad for p in net.parameters() if p.grad is not None]

    torch._dynamo.reset()
    compiled = torch.compile(run, backend=backend)
    for pair in [(lambda t: None,), (lambda t: t, lambda t: t), (torch.clone, lambda t: t)]:
        assert all(map(torch.equal, gradients_of(compiled, False, *pair), gradients_of(run, False, *pair)))
    with pytest.raises(RuntimeError, match="changed in place"): gradients_of(compiled, True, lambda t: None)
    torch._dynamo.reset()


def test_saved_tensors_double_backward():
    def second(look):
        x = leaf(0.3, 0.7, dtype=torch.double)
        with hl.saved_tensors(lambda t: None) if look else torch.enable_grad():
            (g,) = torch.autograd.grad((x.sin()*x.exp()).sum(), x, create_graph=True)
            return torch.autograd.grad(g.sum(), x)[0]
    assert torch.equal(second(True), second(False))


@pytest.mark.parametrize("pack, unpack", [(lambda t: t, lambda t: t), (lambda t: (t.cpu(), 1), lambda saved: saved[0]),
                                          (lambda t: {"part": t.view(-1)}, lambda saved: saved["part"].view(2))])
def test_pairs_that_save_what_they_get_do_no_harm(pack, unpack):
    "torch alone never frees the graph of an operation that saves its result, and takes what was changed since for what was saved."
    x = leaf(1., 2.)
    with hl.saved_tensors(pack, unpack): y = x.exp()
    graph, total = weakref.ref(y), y.sum()
    total.backward()
    assert torch.equal(x.grad, y.detach())
    with hl.saved_tensors(pack, unpack): z = x.exp()
    total = z.sum()
    with torch.no_grad(): z.mul_(2)
    with pytest.raises(RuntimeError, match="changed in place"): total.backward()
    with hl.saved_tensors(pack, unpack): left = x.exp()
    never_used = weakref.ref(left)
    del y, z, total, left
    gc.collect()
    assert graph() is None and never_used() is None


def test_pack_and_unpack():
    x, packed = leaf(1., 2.), []
    with hl.saved_tensors(lambda t: packed.append(t.clone()) or len(packed) - 1, packed.__getitem__): y = (x*x).exp()
    y.sum().backward()
    torch.testing.assert_close(x.grad, (2*x*(x*x).exp()).detach())
    assert packed


# Removed by their own function

@pytest.mark.parametrize("kind", ["tensor", "post_accumulate"])
@pytest.mark.parametrize("which", ["own", "all", "twice"])
def test_a_hook_that_is_removed_by_its_own_function_holds_nothing(net, x, kind, which):
    seen = []
    def f(name, given):
        seen.append(weakref.ref(given))
        for _ in range(2 if which == "twice" else 1): (hooks if which == "all" else hooks[name]).remove()
    hooks = hl.parameter_hooks(net, f, "a", kind=kind)
    gradients(net, x)
    net.zero_grad(set_to_none=True)
    assert len(seen) == (1 if which == "all" else 2)
    assert kind == "post_accumulate" or all(ref() is None for ref in seen)
    assert hooks.removed and not hl.hooks_on(net) and nothing_left(net)
    gradients(net, x)
    assert len(seen) == (1 if which == "all" else 2)


# Clipping

def test_the_clipper_returns_the_very_model(net, x):
    kept = vars(net).copy()
    assert hl.gradient_clipper(net, 1e-3) is net and type(net) is Net and vars(net).keys() == kept.keys()
    assert hl.gradient_clipper(net, 1e-4) is net  # two clippers clip twice
    assert all(g is None or g.abs().max() <= torch.tensor(1e-4) for g in gradients(net, x).values())
    assert hl.remove_hooks(net) == 2*5
    assert nothing_left(net) and vars(net)["_load_state_dict_post_hooks"] is kept["_load_state_dict_post_hooks"]
    with pytest.raises(TypeError, match="context manager"), hl.gradient_clipper(net, 1.0): pass
    assert hl.remove_hooks(net) == 5


def test_clipped_gradients_are_hooks(net, x):
    before = gradients(net, x)
    hooks = hl.clipped_gradients(net, 1e-3)
    assert isinstance(hooks, hl.Hooks) and "a.weight" in [h.name for h in hooks]
    assert all(g is None or g.abs().max() <= 1e-3 for g in gradients(net, x).values())
    hooks.remove()
    hooks.remove()
    assert nothing_left(net) and same(gradients(net, x), before)


@pytest.mark.parametrize("accumulated", [False, True])
@pytest.mark.parametrize("by", ["value", "norm"])
def test_clipping_is_out_of_place_and_exact(net, x, by, accumulated):
    before = {n: g for n, g in gradients(net, x).items() if g is not None}
    with hl.clipped_gradients(net, 1.0, by=by, accumulated=accumulated): after = gradients(net, x)
    for name, g in before.items():
        if by == "value": assert torch.equal(after[name], g.clamp(-1, 1))
        elif g.norm() <= 1: assert torch.equal(after[name], g)
        else: torch.testing.assert_close(after[name], g/g.norm())
    assert nothing_left(net) and any(not torch.equal(after[n], g) for n, g in before.items())
    big = 1e6
    with hl.clipped_gradients(net, big, by=by, accumulated=accumulated): assert same(gradients(net, x, 2), gradients(copy.deepcopy(net), x, 2))


def test_two_micro_batches():
    for accumulated, expected in (False, 2.0), (True, 1.0):
        w = nn.Linear(1, 1, bias=False)
        with hl.clipped_gradients(w, 1.0, accumulated=accumulated):
            for _ in range(2): w(torch.full((1, 1), 5.0)).sum().backward()
        assert w.weight.grad == expected


def test_a_gradient_that_is_shared_stays_whole():
    class Add(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Parameter(torch.zeros(2)), nn.ParameterList([torch.zeros(2)])
            self.c = nn.Identity()
        def forward(self): return self.a + self.b[0]
    for accumulated in False, True:
        m, five = Add(), torch.full((2,), 5.)
        with hl.clipped_gradients(m, 1.0, "b", accumulated=accumulated): m().backward(five)
        assert m.a.grad.tolist() == [5, 5] and m.b[0].grad.tolist() == [1, 1] and five.tolist() == [5, 5]


@pytest.mark.parametrize("by", ["value", "norm"])
@pytest.mark.parametrize("accumulated", [False, True])
def test_clipping_odd_gradients(by, accumulated):
    def clip(p, loss):
        m = nn.ParameterList([p])
        with hl.clipped_gradients(m, 1.0, by=by, accumulated=accumulated): loss(m[0]).backward()
        return m[0].grad
    half = clip(nn.Parameter(torch.ones(4, dtype=torch.float16)), lambda p: (p*60000.).sum())
    assert half.dtype == torch.float16 and torch.isclose(half.max() if by == "value" else half.float().norm().half(), half.new_tensor(1.), rtol=1e-3)
    nan = clip(nn.Parameter(torch.ones(2)), lambda p: (p*torch.tensor([float("nan"), 0.5])).sum())
    assert nan[0].isnan() and nan[1] == 0.5
    z = clip(nn.Parameter(torch.ones(2, dtype=torch.complex64)), lambda p: (p*(3 + 4j)).real.sum())
    assert z.is_complex() and (torch.equal(z, torch.full((2,), 1 - 1j)) if by == "value" else torch.isclose(z.norm(), torch.tensor(1.)))
    s = clip(nn.Parameter(torch.ones(4, 2)), lambda p: nn.functional.embedding(torch.tensor([1, 1, 3]), p, sparse=True).sum())
    assert s.is_sparse and (s.to_dense().max() == 1 if by == "value" else torch.isclose(s.to_dense().norm(), torch.tensor(1.)))
    zero = clip(nn.Parameter(torch.ones(2)), lambda p: (p*0).sum())
    assert zero.tolist() == [0, 0]


def test_clippers_of_several_layers(net, x):
    with hl.clipped_gradients(net, 1e-3, ["a"]), hl.clipped_gradients(net, 1e-2, nn.Linear): after = gradients(net, x)
    assert after["a.bias"].abs().max() <= 1e-3 < after["b.bias"].abs().max() <= torch.tensor(1e-2)
    for bad in dict(val=0), dict(val=-1), dict(val=float("nan")), dict(val=1, by="length"):
        with pytest.raises(ValueError): hl.gradient_clipper(net, **bad)
    with pytest.raises(LookupError): hl.gradient_clipper(net, 1, "c")
    assert nothing_left(net)


def test_a_loss_of_nan():
    torch.manual_seed(0)
    net = nn.Linear(3, 4)
    loss = hl.gradient_clipper(net, 0.001)(torch.randn(8, 3)).log().mean()
    loss.backward()
    assert loss.isnan() and net.weight.grad.nan_to_num().abs().max() <= 0.001


def test_clipping_twice_is_not_needed(net):
    def run():
        with hl.clipped_gradients(net, 1.0): pass
    assert "no gradient arrived" in warning_of(run)  # the backward pass was outside of the `with`


# State dicts and steps

def test_state_dict_hooks_in_order(net):
    seen = []
    hooks = [hl.state_dict_hook(net, lambda *given, name=name: seen.append((name, len(given))), **where) for name, where in
             {"save pre": dict(before=True), "save": {}, "load pre": dict(load=True, before=True), "load": dict(load=True)}.items()]
    net.load_state_dict(net.state_dict())
    assert seen == [("save pre", 3), ("save", 4), ("load pre", 8), ("load", 2)] and all(h.n_calls == 1 for h in hooks)
    assert [row.kind for row in hl.hooks_on(net)] == ["state_dict_pre", "state_dict_post", "load_state_dict_pre", "load_state_dict_post"]
    assert all(row.ours and "lambda" in row.function for row in hl.hooks_on(net))
    for h in hooks: h.remove()
    net.load_state_dict(net.state_dict())
    assert len(seen) == 4 and nothing_left(net)


def test_state_dict_hooks_that_return_raise_as_in_torch(net):
    with pytest.raises(RuntimeError, match="None"), hl.state_dict_hook(net, lambda m, state, prefix, meta: state): net.state_dict()
    with pytest.raises(AssertionError, match="in"), hl.state_dict_hook(net, lambda m, keys: keys, load=True): net.load_state_dict(net.state_dict())
    with pytest.raises(KeyboardInterrupt), hl.state_dict_hook(net.a, lambda *given: (_ for _ in ()).throw(KeyboardInterrupt)): net.state_dict()
    assert nothing_left(net)


def test_a_load_hook_may_forgive(net):
    state = {name: t for name, t in net.state_dict().items() if not name.startswith("unused")}
    with hl.state_dict_hook(net, lambda m, keys: keys.missing_keys.clear(), load=True): net.load_state_dict(state)
    with pytest.raises(RuntimeError, match="unused"): net.load_state_dict(state)
    with hl.state_dict_hook(net, lambda m, state, prefix, meta: state.__delitem__("a.bias")): assert "a.bias" not in net.state_dict()
    assert "a.bias" in net.state_dict()


def test_step_hooks(net, x):
    optimizer, seen = torch.optim.Adam(net.parameters()), []
    gradients(net, x)
    with (hl.step_hook(optimizer, lambda o, args, kwargs: seen.append(("before", o.state_dict()["state"] != {})), before=True),
          hl.step_hook(optimizer, lambda o, args, kwargs: seen.append(("after", o.state_dict()["state"] != {}))) as h):
        optimizer.step()
        twin = copy.deepcopy(optimizer)
        twin.step()
        pickle.loads(pickle.dumps(optimizer)).step()
        assert h.n_calls == 1
    assert seen == [("before", False), ("after", True)]
    optimizer.step()
    assert len(seen) == 2 and not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks
    called = []
    def closure(): return called.append(1) or torch.zeros(())
    with hl.step_hook(optimizer, lambda o, args, kwargs: ((o, closure), kwargs), before=True): optimizer.step()
    assert called == [1]
    with pytest.raises(KeyboardInterrupt), hl.step_hook(optimizer, lambda *a: (_ for _ in ()).throw(KeyboardInterrupt)): optimizer.step()
    assert not optimizer._optimizer_step_post_hooks


def test_the_other_kinds_say_what_is_wrong(net):
    with pytest.raises(TypeError, match="optimizer"): hl.step_hook(net, print)
    with pytest.raises(TypeError, match="Module"): hl.state_dict_hook({}, print)
    with pytest.raises(TypeError, match="function"): hl.state_dict_hook(net, None)
    with pytest.raises(ValueError, match="forward"): hl.global_hook(print, kind="sideways")
    with pytest.raises(ValueError, match="run first"): hl.global_hook(print, prepend=True)
    with pytest.raises(ValueError, match="run first"): hl.global_hook(print, kind="forward_pre", with_kwargs=True)
    with pytest.raises(TypeError, match="keep"): hl.global_hook(print, kind="module_registration", keep=3)
    assert nothing_left(net)


# Global ones

@pytest.mark.parametrize("kind", ["forward", "forward_pre", "backward", "backward_pre"])
@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_global_hooks_see_every_layer_and_go(net, x, kind, error):
    before, seen = gradients(net, x), []

    def f(m, *given):
        seen.append(m)
        if error and len(seen) == 2: raise error
        return given[-1]

    hook = hl.global_hook(f, kind)
    assert not global_hooks()  # it is for a `with`
    try:
        with hook: assert same(gradients(net, x), before)
    except (ValueError, KeyboardInterrupt): assert error
    assert not global_hooks() and hook.removed
    if not error: assert {id(m) for m in seen} == {id(m) for m in (net, net.a, net.act, net.b)}
    assert same(gradients(net, x), before)


def test_global_gradients_are_those_of_the_engine(net, x):
    def keep(m, grad_in, grad_out): return grad_in[0], grad_out[0]
    with hl.global_hook(lambda m, *given: (m, keep(m, *given)), "backward", root=net) as every, hl.Hooks([net.a, net.act, net.b], keep, is_forward=False) as hooks:
        gradients(net, x)
        found = {id(m): grads for m, grads in every.calls}
        for h in hooks:
            for a, b in zip(found[id(h.module)], h.stored): assert torch.equal(a, b)
    with pytest.raises(RuntimeError, match="one `with`"), every: pass


@pytest.mark.parametrize("reentrant", [True, False])
def test_global_gradients_of_checkpointed_layers(x, reentrant):
    net, seen = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)), []

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.last = net, nn.Linear(4, 2)
        def forward(self, x): return self.last(checkpoint(self.inner, x, use_reentrant=reentrant))

    model = Checkpointed()
    with hl.global_hook(lambda m, *grads: seen.append(m), "backward"): model(x).sum().backward()
    assert len(seen) == 6 and {id(m) for m in seen} == {id(m) for m in model.modules()}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_global_gradients_after_a_layer_that_failed(x, error):
    class Fails(nn.Module):
        def forward(self, x): raise error

    class Goes(nn.Module):
        def __init__(self):
            super().__init__()
            self.fails = Fails()
        def forward(self, x):
            try: self.fails(x*3)
            except error: return x*2

    with hl.global_hook(lambda m, grad_in, grad_out: grad_in[0], "backward") as h:
        Goes()(x).sum().backward()
        assert h.n_calls == 1 and torch.equal(h.stored, torch.full_like(x, 2))
        if error is ValueError:
            with pytest.raises(ValueError): Fails()(x)
        assert not any(h.entrances.values())


def test_global_hooks_and_threads(x):
    def run(): net(x.detach()).sum().backward()
    net = nn.Sequential(*[nn.Linear(4, 4) for _ in range(5)])
    with hl.global_hook(lambda m, grad_in, grad_out: (m, grad_in[0] is None), "backward", keep=1000) as h:
        workers = [threading.Thread(target=run) for _ in range(4)]
        for w in workers: w.start()
        for w in workers: w.join()
        assert len(h.calls) == 4*6 and all(first == (m in (net, net[0])) for m, first in h.calls)


def test_registrations():
    seen = []
    kinds = "module_registration", "parameter_registration", "buffer_registration"
    hooks = [hl.global_hook(lambda m, name, part: seen.append(name) or 3, kind) for kind in kinds]
    for h in hooks: h.__enter__()
    net = nn.Sequential(nn.BatchNorm1d(2))
    for h in hooks: h.__exit__(None, None, None)
    assert seen == ["weight", "bias", "running_mean", "running_var", "num_batches_tracked", "0"]
    assert isinstance(net[0].weight, nn.Parameter) and not global_hooks()  # what the function returned replaced nothing


@pytest.mark.filterwarnings("ignore:Using `torch.compile:UserWarning")
def test_global_hooks_in_compiled_code(x):
    torch._dynamo.reset()
    net, seen = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), []
    compiled = torch.compile(net, backend="eager")
    compiled(x)
    with hl.global_hook(lambda m, i, o: seen.append(type(m).__name__)): y = compiled(x)
    assert seen[:3] == ["Linear", "ReLU", "Sequential"] and torch.equal(y, net(x))
    n = len(seen)
    compiled(x)
    assert len(seen) == n
    torch._dynamo.reset()


# Two processes

def shared_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))


def batch(rank): return torch.randn(3, 4, generator=torch.Generator().manual_seed(rank))*5


def expected(clip):
    "The gradients of both processes, clipped by `clip`, and their mean."
    each = []
    for rank in 0, 1:
        net = shared_net()
        net(batch(rank)).pow(2).mean().backward()
        each.append([clip(p.grad) for p in net.parameters()])
    return [(a + b)/2 for a, b in zip(*each)]


def in_a_process(rank, store):
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)

    def step(model): model(batch(rank)).pow(2).mean().backward()

    for views in False, True:
        for accumulated in False, True:
            for by in "value", "norm":
                model = DistributedDataParallel(shared_net(), gradient_as_bucket_view=views)
                with hl.clipped_gradients(model, 0.1, by=by, accumulated=accumulated):
                    step(model)
                    assert [row.layer for row in hl.hooks_on(model) if row.ours] == [n for n, _ in model.module.named_parameters()]
                clip = (lambda g: g.clamp(-0.1, 0.1)) if by == "value" else lambda g: g*min(1, 0.1/g.norm())
                for p, g in zip(model.parameters(), expected(clip)): torch.testing.assert_close(p.grad, g)
                assert nothing_left(model)

    whole = expected(lambda g: g)
    for by, clip in ("value", lambda g: g.clamp(-0.1, 0.1)), ("norm", lambda g: g*min(1, 0.1/g.norm())):
        model = shared_net()
        fully_shard(model[0])
        fully_shard(model)
        for clip_now in hl.gradient_clipper, hl.clipped_gradients:
            with pytest.raises(ValueError, match="sharded parameters.*accumulated=True"): clip_now(model, 0.1)
        with pytest.raises(ValueError, match='sharded parameters.*kind="post_accumulate"'): hl.parameter_hooks(model)
        with pytest.raises(ValueError, match='sharded parameters.*parameter_hooks'): hl.GradientCheck(model)
        with hl.clipped_gradients(model, 0.1, by=by, accumulated=True): step(model)
        for p, g in zip(model.parameters(), whole): torch.testing.assert_close(p.grad.full_tensor(), clip(g))
        assert not any(row.ours for row in hl.hooks_on(model))  # what is left are torch's own

    model.zero_grad()
    silent = hl.tensor_hook(model[0].weight, name="0.weight")
    with hl.parameter_hooks(model, kind="post_accumulate") as hooks:
        step(model)
        assert torch.equal(hooks["0.weight"].stored.full_tensor(), model[0].weight.grad.full_tensor())
    assert "of a sharded parameter: use post_accumulate" in warning_of(silent.remove)
    dist.destroy_process_group()


@pytest.mark.slow
def test_data_parallel_and_sharded_models(tmp_path):
    started(in_a_process, (tmp_path/"store",), 2)


@pytest.mark.parametrize("accumulated", [False, True])
def test_clipping_inside_autograd_grad(accumulated):
    model, x = nn.Linear(4, 1, bias=False), torch.full((1, 4), 5.)
    with hl.clipped_gradients(model, 1., accumulated=accumulated):
        g, = torch.autograd.grad(model(x).sum(), model.parameters(), create_graph=True)
        assert torch.equal(g, torch.full((1, 4), 5. if accumulated else 1.)) and model.weight.grad is None
        model(x).sum().backward()
        assert torch.equal(model.weight.grad, torch.ones(1, 4))


@pytest.mark.parametrize("by", ["value", "norm"])
def test_complex_gradients_are_clipped_by_their_parts_or_their_norm(by):
    class Turns(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1, dtype=torch.complex64))
        def forward(self, x): return (self.weight*x).real.sum()

    model = Turns()
    with hl.clipped_gradients(model, 1., by=by): model(torch.tensor([5 - 5j])).backward()
    largest = model.weight.grad.abs().item()
    assert largest == pytest.approx(2**.5 if by == "value" else 1.) and model.weight.grad.imag == model.weight.grad.real
