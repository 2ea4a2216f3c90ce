"""Edits: every container, every way to fail, and the model as it was."""
import contextlib
import copy
import functools
import gc
import pickle
import weakref
from collections import OrderedDict, namedtuple
from collections.abc import Mapping
from dataclasses import dataclass
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.checkpoint import checkpoint

import hooklab as hl
from hooklab import HookWarning
from hooklab.edit.changes import Change, ablate, patch, scale, steer
from hooklab.edit.edits import edit_input, edit_output
from hooklab.hooks import books, layer_hook as calls
from hooklab.hooks.tree import named_tensors
from support.nets import Net, Returns, Twins, all_equal, step
from support.portions import one_in

pytestmark = pytest.mark.filterwarnings("error::hooklab.hooks.copies.HookWarning")


def times(factor):
    "An edit by hand, of input or output."
    return lambda m, *given: (given[-1][0] if type(given[-1]) is tuple else given[-1])*factor


# The model is as it was

@pytest.mark.parametrize("edit", [edit_input, edit_output])
@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["edit", "body", "model"])
def test_nothing_is_left(net, x, edit, error, where):
    state, rng = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    before, mode = step(net, x), net.training

    def f(m, *given):
        if where == "edit" and error: raise error
        return given[-1]

    def broken(m, i): raise error

    foreign = net.act.register_forward_pre_hook(broken) if where == "model" and error else None
    try:
        with edit(net, f, names="*") as edits:
            step(net, x)
            if where == "body" and error: raise error
    except (ValueError, KeyboardInterrupt): assert error
    if foreign: foreign.remove()
    assert not hl.hooks_on(net) and edits.removed and net.training == mode
    assert all_equal(list(net.state_dict().values()), list(state.values())) and torch.equal(rng, torch.get_rng_state())
    assert all_equal(step(net, x), before)


def test_attaching_is_all_or_nothing(net, monkeypatch):
    def fails_at_b(m, *given):
        if m is net.b: raise KeyboardInterrupt
        return books.register(m, *given)
    monkeypatch.setattr(calls, "register", fails_at_b)
    with pytest.raises(KeyboardInterrupt): edit_output(net, scale(2), names="*")
    assert not hl.hooks_on(net)


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_any_nesting_leaves_nothing(data):
    torch.manual_seed(0)
    net, x = Net(), torch.randn(2, 4, requires_grad=True)
    before = step(net, x)
    makers = st.sampled_from([lambda: edit_output(net, scale(2), names="?"), lambda: edit_input(net.b, times(3)),
                              lambda: edit_output(net.a, ablate(1)), lambda: hl.hook_outputs(net, names="*", grad=True),
                              lambda: edit_output(net, patch(0), names="b", call=1)])
    try:
        with contextlib.ExitStack() as stack:
            on = [stack.enter_context(data.draw(makers)()) for _ in range(data.draw(st.integers(1, 5)))]
            step(net, x)
            for edits in on:
                if data.draw(st.booleans()): edits.remove()
            step(net, x)
            if data.draw(st.booleans()): raise ValueError
    except ValueError: pass
    assert not hl.hooks_on(net) and all_equal(step(net, x), before)


def test_copies_are_not_edited(net, x):
    before = net(x)
    with edit_output(net, scale(2), names="*") as edits:
        for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))): assert torch.equal(other(x), before)
        assert copy.deepcopy(edits).removed and pickle.loads(pickle.dumps(edits)).removed
        assert not torch.equal(net(x), before)


def test_remove_hooks_takes_edits_off(net, x):
    before = net(x)
    foreign = net.a.register_forward_hook(lambda m, i, o: None)
    edits = edit_output(net, scale(2), names="*")
    assert {a.kind for a in hl.hooks_on(net) if a.ours} == {"edit_output", "pass"}
    assert hl.remove_hooks(net) == 3 and edits.removed and torch.equal(net(x), before)
    assert len(hl.hooks_on(net)) == 1
    edits.remove()
    foreign.remove()


# What is replaced

def test_doubled_in_and_out():
    layer, x = nn.Linear(1, 2), torch.randn(3, 1)
    with edit_input(layer, times(2)), hl.Hook(layer, lambda m, i, o: i) as seen, edit_output(layer, times(2)):
        y = layer(x)
        assert torch.equal(y, 2*nn.functional.linear(2*x, layer.weight, layer.bias))
        assert type(seen.stored) is tuple and torch.equal(seen.stored[0], 2*x)


def test_order_is_that_of_attaching_and_prepend_is_first(net, x):
    def plus(m, i, o): return o + 1
    y = net.a(x)
    with edit_output(net.a, plus), edit_output(net.a, times(2)): assert torch.equal(net.a(x), (y + 1)*2)
    with edit_output(net.a, plus), edit_output(net.a, times(2), prepend=True): assert torch.equal(net.a(x), y*2 + 1)
    with hl.hook_output(net.a) as early, edit_output(net.a, plus), hl.hook_output(net.a) as late:
        net.a(x)
        assert torch.equal(early.stored, y) and torch.equal(late.stored, y + 1)


def test_none_leaves_the_value(net, x):
    with edit_input(net, lambda m, i: None, names="*"), edit_output(net, lambda m, i, o: None, names="*") as edits:
        y = net(x)
        assert [e.n_calls for e in edits] == [1, 2, 2]
    assert torch.equal(y, net(x))


Pair = namedtuple("Pair", "left right")


@dataclass
class Out:
    logits: Tensor
    note: str = "kept"


containers = {
    "tuple": (lambda t: (t, t + 1), "0", lambda o: o[0]), "list": (lambda t: [t], None, lambda o: o[0]),
    "dict": (lambda t: {"a": t, "b": None}, "a", lambda o: o["a"]), "only": (lambda t: {"a": t, "b": None}, None, lambda o: o["a"]),
    "ordered": (lambda t: OrderedDict(x=(t + 1, t)), "x.1", lambda o: o["x"][1]),
    "namedtuple": (lambda t: Pair(t + 1, t), "right", lambda o: o.right), "dataclass": (Out, "logits", lambda o: o.logits),
    "tensor": (lambda t: t, None, lambda o: o), "deep": (lambda t: ({"q": [t + 1, (t,)]},), "0.q.1.0", lambda o: o[0]["q"][1][0]),
}


@pytest.mark.parametrize("kind", containers)
def test_containers_are_kept(kind, x):
    wrap, part, take = containers[kind]
    m = Returns(wrap)
    plain = m(x)
    with edit_output(m, scale(3, part=part)): edited = m(x)
    assert type(edited) is type(plain) and torch.equal(take(edited), x*3)
    names, others = zip(*named_tensors(plain))
    changed = [name for name, a, b in zip(names, others, hl.tensors(edited)) if not torch.equal(a, b)]
    assert len(changed) == 1 and getattr(edited, "note", "kept") == "kept"


def test_packed_sequences():
    rnn, x = nn.LSTM(3, 4), pack_sequence([torch.randn(3, 3), torch.randn(2, 3)])
    with edit_output(rnn, scale(0, part="0.data")): out, _ = rnn(x)
    assert isinstance(out, PackedSequence) and not out.data.any()
    with edit_input(rnn, scale(0)): zeroed, _ = rnn(x)
    assert torch.equal(zeroed.data, rnn(x._replace(data=torch.zeros_like(x.data)))[0].data)


@pytest.mark.slow
def test_model_output_of_transformers():
    outputs = pytest.importorskip("transformers.modeling_outputs")
    m, t = Returns(lambda t: outputs.BaseModelOutput(last_hidden_state=t)), torch.ones(2, 3)
    with edit_output(m, scale(2)): out = m(t)
    assert type(out) is outputs.BaseModelOutput and torch.equal(out.last_hidden_state, t*2)


@pytest.mark.slow
def test_language_models_of_transformers():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=3, n_head=2, n_embd=8, vocab_size=11, n_positions=16, bos_token_id=0, eos_token_id=0)
    torch.manual_seed(0)
    model, ids, other = transformers.GPT2LMHeadModel(config).eval(), torch.arange(5)[None], torch.arange(5, 10)[None]
    state = copy.deepcopy(model.state_dict())
    plain, there = model(ids), model(other)
    with hl.hook_outputs(model, names="transformer.h.1") as hooks:
        model(other)
        hidden = hl.tensors(hooks[0].stored)[0]
    part = None if isinstance(model.transformer.h[1](torch.randn(1, 2, 8)), Tensor) else 0
    with edit_output(model, patch(hidden, part=part), names="transformer.h.1"): patched = model(ids)
    assert type(patched) is type(plain) and torch.equal(patched.logits, there.logits)  # all that matters went through this layer
    with edit_output(model, patch(hidden[:, -1], at=(slice(None), -1), part=part), names="transformer.h.1"): last = model(ids).logits
    assert torch.equal(last[:, :-1], plain.logits[:, :-1]) and not torch.equal(last[:, -1], plain.logits[:, -1])
    with edit_output(model, steer(torch.ones(8), 3, dim=-1, part=part), names=type(model.transformer.h[0])) as edits, \
         hl.hook_outputs(model, names="lm_head") as head:
        steered = model.generate(ids, max_new_tokens=3, do_sample=False, pad_token_id=0)
        assert steered.shape == (1, 8) and edits[0].n_calls and len(head[0].calls)
    with edit_output(model, scale(0, part="logits")):
        assert not model(ids, use_cache=False).logits.any()
    assert not hl.hooks_on(model) and torch.equal(model(ids).logits, plain.logits)
    assert all(torch.equal(t, state[name]) for name, t in model.state_dict().items())


def test_the_same_tensor_twice_is_edited_once(x):
    m = Returns(lambda t: (t, t))
    with edit_output(m, scale(2, part=1)): a, b = m(x)
    assert torch.equal(a, x) and torch.equal(b, 2*x)


def test_keyword_arguments(x):
    m = Returns(lambda t, *, by, flag=True: t*by)
    with edit_input(m, patch(3., part="by")): assert torch.equal(m(x, by=torch.zeros(4), flag=False), x*3)
    with edit_input(m, lambda m, i, k: (i, {"by": 5}), with_kwargs=True): assert torch.equal(m(x, by=1), x*5)
    with edit_input(m, lambda m, i, k: None, with_kwargs=True): assert torch.equal(m(x, by=1), x)
    with edit_output(m, lambda m, i, k, o: o + k["by"], with_kwargs=True): assert torch.equal(m(x, by=2), x*2 + 2)
    with edit_input(m, lambda m, i, k: i, with_kwargs=True), pytest.raises(TypeError, match="dict of keyword arguments"): m(x, by=1)


def test_call_of_a_reused_layer(net, x):
    with edit_output(net, patch(0), names="b", call=1), hl.hook_outputs(net, names="b") as hooks:
        for _ in range(2):
            net(x)
            assert [bool(o.any()) for o in hooks["b"].calls] == [True, False]
    with pytest.warns(HookWarning, match=r"b: ran 2 times.*call=2 never came"):
        with edit_output(net, patch(0), names="b", call=2): net(x)
    with pytest.raises(ValueError, match="call= counts within a pass"): edit_output(net.b, patch(0), call=1)


def test_an_edit_that_never_happened_is_reported(net, x):
    with pytest.warns(HookWarning, match="Linear: hooked, but never called"):
        with edit_output(net.b, scale(2)): net.a(x)


# The edits that are asked for often

@pytest.mark.parametrize("shape,dim,channel", [((4,), None, 0), ((2, 4), None, 1), ((2, 4, 3, 3), None, 1), ((2, 4, 3, 3, 3), None, 1),
                                               ((2, 3, 4), -1, 2), ((2, 4, 3), 1, 1), ((2, 3, 3, 4), -1, 3)])
@pytest.mark.parametrize("units", [1, [1, 3], range(1, 3), torch.tensor([3, 0]), torch.tensor([True, False, False, True])])
@pytest.mark.parametrize("to", [0, 2.5, "mean"])
def test_ablate(shape, dim, channel, units, to):
    m, t = nn.Identity(), torch.randn(shape, dtype=torch.float64)
    with edit_output(m, ablate(units, to, dim)): out = m(t)
    numbers = units.nonzero().flatten() if getattr(units, "dtype", None) == torch.bool else torch.as_tensor(units)
    numbers = set(numbers.flatten().tolist())
    for i in range(4):
        a, b = t.select(channel, i), out.select(channel, i)
        if i not in numbers: assert torch.equal(a, b)
        else: torch.testing.assert_close(b, torch.full_like(b, a.mean() if to == "mean" else to))
    assert out.stride() == t.stride()


def test_ablate_to_one_number_for_each():
    m, t = nn.Identity(), torch.randn(2, 4, 3, 3)
    with edit_output(m, ablate([2, 0], torch.tensor([5., 7.]))): out = m(t)
    assert (out[:, 2] == 5).all() and (out[:, 0] == 7).all() and torch.equal(out[:, [1, 3]], t[:, [1, 3]])
    with edit_output(m, ablate([])): assert torch.equal(m(t), t)


@pytest.mark.parametrize("units", [4, -1, [0, 9], torch.tensor([4])])
def test_units_out_of_range(net, x, units):
    with edit_output(net, ablate(units), names="a"), pytest.raises(IndexError, match="there are 4") as caught: net(x)
    assert "edit_output of a" in caught.value.__notes__[0]


def test_steer_and_scale_along_channels():
    m, v = nn.Identity(), torch.tensor([1., 2.])
    t = torch.randn(3, 2, 4, 4)
    with edit_output(m, steer(v, 2)): torch.testing.assert_close(m(t) - t, (2*v).view(2, 1, 1).expand_as(t))
    t = torch.randn(3, 5, 2)
    with edit_output(m, steer(v, dim=-1, at=(slice(None), slice(-1, None)))): out = m(t)
    assert torch.equal(out[:, :-1], t[:, :-1]) and torch.equal(out[:, -1], t[:, -1] + v)
    with edit_output(m, steer(v)), pytest.raises(ValueError, match="where are the channels"): m(t)
    with edit_output(m, steer(torch.ones(3), dim=-1)), pytest.raises(ValueError, match="3 numbers, but there are 2"): m(t)
    with pytest.raises(ValueError, match="one vector"): steer(torch.ones(2, 2))
    with pytest.raises(TypeError, match=r"edit_output\(layer, steer\(direction\)\); .* Identity"): steer(m, "0", v)
    assert t.requires_grad is False


def test_patch_from_another_run(net, x):
    other = torch.randn(2, 4)
    with hl.hook_outputs(net, names="*") as hooks:
        net(other)
        a = hooks["a"].stored
    with edit_output(net, patch(a), names="a"): here = net(x)
    torch.testing.assert_close(here, x + net.b(net.act(net.a(other) + 1)) + net.act(net.b(x)))
    with edit_output(net, patch(a[0], at=0), names="a"), hl.hook_output(net.a) as seen:
        net(x)
        assert torch.equal(seen.stored[0], a[0]) and not torch.equal(seen.stored[1], a[1])


def test_a_patch_is_not_overwritten_by_layers_that_work_in_place():
    net, value = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)), torch.tensor([-1., 1, -1, 1])
    with edit_output(net[0], patch(value)): assert net(torch.randn(2, 4)).sum() == 4
    assert value.tolist() == [-1, 1, -1, 1]
    with edit_output(net[0], patch(torch.ones(5))), pytest.raises(ValueError, match="replaces 2×4, but .* of 5 "):
        net(torch.randn(2, 4))


def test_a_patch_that_does_not_fit_says_what_is_replaced():
    net, whole = nn.Sequential(nn.Linear(4, 6), nn.Tanh()), torch.ones(3, 5, 6)
    x, at = torch.randn(3, 5, 4), (slice(None), 2)
    with edit_output(net[0], patch(whole, at=at)), pytest.raises(ValueError) as raised: net(x)
    assert "patch replaces 3×6, but its value of 3×5×6 cannot be spread over that; with at=" in str(raised.value)
    with edit_output(net[0], patch(whole[at], at=at)): assert (net(x)[at] == torch.tanh(torch.ones(()))).all()
    with edit_output(net[0], patch(torch.ones(2))), pytest.raises(ValueError) as raised: net(x)
    assert str(raised.value).endswith("of 2 cannot be spread over that")
    for fits in torch.ones(()), torch.ones(6), torch.ones(5, 1), torch.ones(1, 5, 6):
        with edit_output(net[0], patch(fits)): net(x)


# Gradients, modes, compilers

def test_gradients_flow_through_edits(net, x):
    factor, source = torch.tensor(2., requires_grad=True), torch.zeros(2, 4, requires_grad=True)
    with edit_output(net.a, scale(factor)), edit_output(net.b, patch(source, at=...)): step(net, x)
    assert net.a.weight.grad is None or not net.a.weight.grad.any()  # b's output was replaced
    assert source.grad is not None and source.grad.any()
    with edit_output(net.a, scale(factor)), hl.hook_output(net.a, grad=True) as h:
        step(net, x)
        assert factor.grad and h.stored[0].any()


def test_an_edit_in_place(net, x):
    def clip(m, i, o): return o.clamp_(max=0)
    with edit_output(net.a, clip): edited = step(net, x)
    with edit_output(net.a, lambda m, i, o: o.clamp(max=0)): assert all_equal(step(net, x), edited)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(net, x, reentrant):
    plain = nn.Sequential(net, nn.Linear(4, 4))

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = plain
        def forward(self, x): return checkpoint(self.inner, x, use_reentrant=reentrant)

    wrapped = Checkpointed()
    with edit_output(plain, ablate(2), names="0.*"): expected = step(plain, x)
    with edit_output(wrapped, ablate(2), names="inner.0.*") as edits:
        assert all_equal(step(wrapped, x), expected)
        assert [e.n_calls for e in edits] == [1, 2, 2]
    with edit_output(wrapped, ablate(2), names="inner.0.b", call=1):
        with pytest.raises(RuntimeError, match="call= does not work with checkpointing"): step(wrapped, x)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)])
def test_contexts(net, x, context):
    with context():
        plain = net.a(x)
        with edit_output(net.a, ablate([0], 1.)): out = net.a(x)
    assert out.dtype == plain.dtype and (out[:, 0] == 1).all() and torch.equal(out[:, 1:], plain[:, 1:])


def test_meta_device():
    net = Net().to("meta")
    for change in (ablate([1, 2], "mean"), steer(torch.ones(4)), patch(torch.zeros(2, 4)), scale(2)):
        with edit_output(net, change, names="*"): assert net(torch.empty(2, 4, device="meta")).shape == (2, 4)


@pytest.mark.gpu
def test_values_go_where_the_activations_are(net, x):
    changes = [ablate([1, 2], "mean"), ablate(0, torch.tensor([3.])), steer(torch.ones(4)), patch(torch.zeros(2, 4)), scale(2)]
    expected = []
    for change in changes:
        with edit_output(net, change, names="*"): expected.append(net(x))
    net, x = net.cuda(), x.detach().cuda()
    for change, right in zip(changes, expected):
        with edit_output(net, change, names="*"): torch.testing.assert_close(net(x).cpu(), right)


def test_functional_transforms(net, x):
    with edit_output(net, ablate(1), names="a"):
        torch.testing.assert_close(torch.vmap(net)(x), net(x))
        expected = torch.autograd.grad(net(x).sum(), x)[0]
        torch.testing.assert_close(torch.func.grad(lambda x: net(x).sum())(x), expected)


@pytest.mark.parametrize("backend", one_in(2, ["aot_eager", "eager"]))
@pytest.mark.parametrize("first", ["compile", "edit"])
def test_compiled(net, x, backend, first):
    torch._dynamo.reset()
    edits = [lambda: edit_output(net, ablate(1), names="a"), lambda: edit_input(net.b, times(2)), lambda: edit_output(net, scale(3), names="b", call=1)]
    before = step(net, x)
    for make in edits:
        with make(): expected = step(net, x)
        assert not all_equal(expected, before)
        if first == "compile":
            compiled = torch.compile(net, backend=backend, fullgraph=True)
            assert all_equal(step(compiled, x), before)
            on = make()
        else:
            on = make()
            compiled = torch.compile(net, backend=backend, fullgraph=True)
        for _ in range(12): assert all(torch.allclose(a, b) for a, b in zip(step(compiled, x), expected))
        on.remove()
        assert all_equal(step(compiled, x), before)
    torch._dynamo.reset()


def test_compiled_code_is_not_compiled_anew_for_each_step(net, x):
    from torch._dynamo.testing import CompileCounter
    torch._dynamo.reset()
    counted = CompileCounter()
    compiled = torch.compile(net, backend=counted)
    with edit_output(net, steer(torch.ones(4), part=None), names="?"):
        for _ in range(10): compiled(x)
        assert counted.frame_count <= 2
    torch._dynamo.reset()


def test_compiled_containers(x):
    torch._dynamo.reset()
    m = nn.Sequential(Returns(lambda t: {"a": (t + 1, t), "b": t}), Returns(lambda o: o["a"][1] + o["b"]))
    with edit_output(m[0], scale(3, part="a.1")): assert torch.equal(torch.compile(m, backend="eager", fullgraph=True)(x), 4*x)
    torch._dynamo.reset()


# Errors help

def test_errors(net, x):
    with pytest.raises(LookupError, match="matches 'actt'; it has act"): edit_output(net, scale(2), names="actt")
    with pytest.raises(LookupError): edit_output(net, scale(2), names=nn.Conv2d)
    with pytest.raises(ValueError, match="no layers"): edit_output(net, scale(2), names=[])
    for wrong in ([net.a], "a", None):
        with pytest.raises(TypeError, match="expected a torch.nn.Module"): edit_output(wrong, scale(2))
    with pytest.raises(TypeError, match="must be a function"): edit_output(net.a, 2)
    with pytest.raises(TypeError, match="function of one tensor"): Change(2)
    with pytest.raises(ValueError, match="'median'"): ablate(1, to="median")
    with pytest.raises(TypeError, match=r"f\(layer, inputs, output\)"): edit_output(net.a, lambda o: o*2)
    with edit_output(net.a, torch.neg), pytest.raises(TypeError) as caught: net(x)  # does not tell what it takes
    assert "f(layer, inputs, output)" in caught.value.__notes__[0]
    two = Returns(lambda t: (t, t))
    with edit_output(two, scale(2)), pytest.raises(LookupError, match="which tensor.*'0', '1'"): two(x)
    with edit_output(two, scale(2, part="logits")), pytest.raises(LookupError, match="no tensor is called 'logits'"): two(x)
    with edit_output(net.a, scale(2, part="0")), pytest.raises(LookupError, match="leave part= out"): net(x)
    with edit_output(Returns(lambda: None), scale(2)) as e, pytest.raises(LookupError, match="no tensor to change"): e[0].module()
    assert not hl.hooks_on(net)


@pytest.mark.parametrize("f,became", [(lambda m, i, o: o[:, :3], "(2, 3)"), (lambda m, i, o: o.double(), "float64"),
                                      (lambda m, i, o: (o,), "tuple"), (lambda m, i, o: o.to("meta"), "meta"), (lambda m, i, o: {}, "dict")])
def test_an_edit_that_does_not_fit_is_named(f, became):
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with pytest.raises((RuntimeError, TypeError)) as caught:
        with edit_output(net, f, names="0"): net(torch.randn(2, 4))
    (note,) = caught.value.__notes__
    assert "edit_output of 0" in note and became in note.split("became")[1]
    def wrapped(m, i): return (f(m, i, i[0]),)
    with pytest.raises((RuntimeError, TypeError)) as caught:
        with edit_input(net, wrapped, names="1"): net(torch.randn(2, 4))
    assert "edit_input of 1" in caught.value.__notes__[0]


def test_another_form_is_no_error_where_nothing_stumbles_over_it(net, x):
    with edit_output(net.a, lambda m, i, o: o.double()) as edits: assert net.a(x).dtype == torch.float64 and "float64" in edits[0].note
    assert net.a(x).dtype == torch.float32


def test_an_edit_that_fits_leaves_no_note(net, x):
    with pytest.raises(ZeroDivisionError) as caught:
        with edit_output(net, scale(2), names="*"), edit_input(net, times(2), names="*"):
            net(x)
            1/0
    assert not hasattr(caught.value, "__notes__")


# Values that cannot say their shape

def encoder_and_words():
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    return encoder, torch.randn(3, 5, 8), torch.arange(5) >= torch.tensor([[3], [5], [2]])


@pytest.fixture
def padded():
    "As `torch.backends.mha.set_fastpath_enabled` leaves it: no nested tensors."
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(before)


edits_of_nested = {"own": lambda m, i, o: o*2, "change": hl.Change(lambda t: t*2), "scale": hl.scale(2.), "patch": hl.patch(3.)}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("name", edits_of_nested)
def test_nested_outputs_are_edited(name):
    encoder, words, mask = encoder_and_words()
    seen = []
    with torch.no_grad():
        plain = encoder(words, src_key_padding_mask=mask)
        with hl.edit_output(encoder, edits_of_nested[name], names="layers.1"), hl.Hook(encoder.layers[1], lambda m, i, o: seen.append(o)):
            edited = encoder(words, src_key_padding_mask=mask)
        assert seen[0].is_nested
        new = torch.full_like(plain, 3.) if name == "patch" else plain*2
        torch.testing.assert_close(edited, new.masked_fill(mask[..., None], 0.))
        assert torch.equal(encoder(words, src_key_padding_mask=mask), plain)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_inputs_are_edited_and_a_nested_value_is_put_in():
    encoder, words, mask = encoder_and_words()
    with torch.no_grad():
        with hl.hook_output(encoder.layers[0]) as h:
            plain = encoder(words, src_key_padding_mask=mask)
            kept = h.stored
        with hl.edit_output(encoder, hl.patch(kept), names="layers.0"):
            torch.testing.assert_close(encoder(2*words, src_key_padding_mask=mask), plain)
        with hl.edit_input(encoder.layers[1], lambda m, i: (i[0]*2, *i[1:])): doubled_in = encoder(words, src_key_padding_mask=mask)
        with hl.edit_output(encoder.layers[0], hl.scale(2)): torch.testing.assert_close(encoder(words, src_key_padding_mask=mask), doubled_in)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("change", [hl.ablate([1], dim=-1), hl.ablate([1]), hl.steer(torch.ones(8), dim=-1), hl.scale(2., at=(..., 0))])
def test_what_nested_tensors_do_not_take_is_said(change):
    encoder, words, mask = encoder_and_words()
    with torch.no_grad(), pytest.raises(Exception) as error, hl.edit_output(encoder, change, names="layers.0"):
        encoder(words, src_key_padding_mask=mask)
    assert any("set_fastpath_enabled(False)" in note for note in error.value.__notes__) and not hl.hooks_on(encoder)


def test_what_the_note_advises_works(padded):
    encoder, words, mask = encoder_and_words()
    for change in hl.ablate([1], dim=-1), hl.steer(torch.ones(8), dim=-1), hl.scale(2., at=(..., 0)):
        with torch.no_grad(), hl.edit_output(encoder, change, names="layers.0"): encoder(words, src_key_padding_mask=mask)


class Shapeless(torch.Tensor):
    "A tensor that cannot say its shape."
    @property
    def shape(self): raise RuntimeError("no sizes")


class Unreadable(dict):
    "A container that cannot be looked into."
    def values(self): raise RuntimeError("locked")


@pytest.mark.parametrize("value", [torch.ones(2).as_subclass(Shapeless), (torch.ones(2), torch.ones(2).as_subclass(Shapeless)), Unreadable(a=1)])
def test_a_description_stops_no_model(value):
    class Returns(nn.Module):
        def forward(self, x): return value
    m = Returns()
    with hl.edit_output(m, lambda m, i, o: [o]) as edits:
        assert m(1)[0] is value
    assert "became list" in edits[0].note


# Functions that cannot be called as an edit

class Callable:
    def __call__(self, o): return o


def adapted(f):
    @functools.wraps(f)
    def g(*given): return f(given[-1])
    return g


@pytest.mark.parametrize("f", [lambda o: o, lambda value, hook: value, lambda: None, lambda m, i: i, Callable(), functools.partial(lambda a, o: o, 1)])
def test_a_function_that_takes_something_else_is_refused_at_once(net, f):
    with pytest.raises(TypeError, match=r"calls f\(layer, inputs, output\), but got .*; .*hl\.Change\(lambda value"): hl.edit_output(net.a, f)
    assert not hl.hooks_on(net)


def test_a_refused_function_is_shown_with_what_it_takes(net):
    def my_edit(value, hook): return value
    with pytest.raises(TypeError) as error: hl.edit_output(net.a, my_edit)
    assert str(error.value) == ("edit_output calls f(layer, inputs, output), but got my_edit(value, hook); for a function of one tensor, "
                                "write hl.Change(lambda value: …)")
    with pytest.raises(TypeError, match="with_kwargs=True"): hl.edit_output(net.a, lambda m, i, k, o: o)
    with pytest.raises(TypeError, match=r"edit_input calls f\(layer, inputs\)"): hl.edit_input(net.a, lambda x: x)
    with pytest.raises(TypeError, match=r"edit_input calls f\(layer, inputs, kwargs\)"): hl.edit_input(net.a, lambda m, i: i, with_kwargs=True)
    assert not hl.hooks_on(net)


@pytest.mark.parametrize("f", [lambda *given: None, lambda m, i, o, more=1: None, functools.partial(lambda a, m, i, o: None, 1), adapted(lambda o: None),
                               torch.where, Mock(return_value=None), hl.Change(lambda t: t), hl.Change(torch.neg)])
def test_functions_that_can_be_called_and_those_that_do_not_tell_pass(net, f): hl.edit_output(net.a, f).remove()


# Removed at odd moments

@pytest.mark.parametrize("together", [False, True])
def test_an_edit_that_is_removed_by_its_own_function_holds_nothing(net, x, together):
    gc.collect()
    gc.disable()
    try:
        def f(m, i, o):
            (edits if together else edits[0]).remove()
            new.append(weakref.ref(doubled := o*2))
            return doubled
        new, plain = [], net(x)
        edits = hl.edit_output(net, f, names="a" if together else ["a", "b"])
        net(x)
        net(x)
        assert len(new) == (1 if together else 5) and all(ref() is None for ref in new)  # `b` runs twice in a pass
        edits.remove()
        edits.remove()
        assert not hl.hooks_on(net) and torch.equal(net(x), plain) and edits.removed
    finally: gc.enable()


def test_one_of_several_is_removed_during_a_pass(net, x):
    with hl.edit_output(net, lambda m, i, o: o*2, names=["a", "b"]) as edits:
        with hl.Hook(net.a, lambda m, i, o: edits["b"].remove()): first = net(x)
        assert edits["b"].removed and not edits["a"].removed and not edits.removed
    with hl.edit_output(net.a, lambda m, i, o: o*2): assert torch.equal(net(x), first)
    assert not hl.hooks_on(net)


# Containers that cannot be made again

class Answers(Mapping):
    def __init__(self, **items): self._items = items
    def __getitem__(self, name): return self._items[name]
    def __iter__(self): return iter(self._items)
    def __len__(self): return len(self._items)
    def __copy__(self): raise TypeError("one of a kind")


odd = {"tuple": (lambda x: Twins(x, x + 1), "0", "Twins"), "Mapping": (lambda x: Answers(a=x, b=x + 1), "a", "Answers"),
       "inside": (lambda x: {"k": [Twins(x, x + 1)]}, "k.0.0", "Twins")}


@pytest.mark.parametrize("make,part,name", odd.values(), ids=odd)
def test_a_container_that_cannot_be_made_again_is_named(make, part, name):
    x, change = torch.ones(2), hl.scale(2., part=part)
    with pytest.raises(TypeError, match=rf"^a {name} cannot be rebuilt around a new tensor.*write a function of the layer"): change(make(x))
    class Layer(nn.Module):
        def forward(self, x): return make(x)
    layer = Layer()
    wanted = f"a {name} cannot be rebuilt around a new tensor"
    with hl.edit_output(layer, change), pytest.raises(TypeError, match=wanted): layer(x)
    class Reads(nn.Module):
        def forward(self, pair): return pair
    with hl.edit_input(reads := Reads(), hl.scale(2., part=f"0.{part}")), pytest.raises(TypeError, match=f"a {name} cannot"): reads(make(x))
    with hl.edit_output(layer, lambda m, i, o: make(i[0]*2)): assert type(layer(x)) is type(make(x)) and torch.equal(hl.tensors(layer(x))[0], x*2)


def test_a_change_of_nothing_leaves_an_odd_container(x=torch.ones(2)):
    pair = Twins(x, x + 1)
    assert hl.Change(lambda t: t, part="0")(pair) is pair
