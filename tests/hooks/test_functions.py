"Hooks on functions: names, spellings, and the promises of every hook."
import copy
import gc
import operator
import pickle
import re
import threading
import warnings
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, get_overridable_functions
from torch.utils.checkpoint import checkpoint

import hooklab as hl
from hooklab.hooks.function_mode import body_of, function_name, wanted_functions

SDPA = F.scaled_dot_product_attention
pytestmark = pytest.mark.usefixtures("one_thread")


class Attention(nn.Module):
    def __init__(self, width=8, heads=2, dropout=0.):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv, self.out = nn.Linear(width, 3*width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        attended = SDPA(q, k, v, dropout_p=self.dropout if self.training else 0.)
        return self.out(attended.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(8), Attention(**options)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x):
        x = x + self.attn(self.norm(x))
        return x + self.mlp(x)


class Model(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.layers, self.head = nn.ModuleList(Block(**options) for _ in range(2)), nn.Linear(8, 3)

    def forward(self, x):
        for layer in self.layers: x = layer(x)
        return torch.softmax(self.head(x), -1)


class Calls(nn.Module):
    "A layer that calls `f` with what it is given."
    def __init__(self, f):
        super().__init__()
        self.f = f
    def forward(self, *args): return self.f(*args)


def x(): return torch.randn(2, 5, 8)


def nothing_left(model):
    assert not _get_current_function_mode_stack() and not hl.hooks_on(model)
    return True


def names_of(h): return [call.name for call in h]


# Names

def test_names_are_those_of_the_layers_and_the_same_in_every_pass():
    model = Model()
    with hl.hook_calls(model, [SDPA, operator.add, torch.softmax]) as h:
        for _ in range(3):
            model(x())
            assert names_of(h) == [
                "layers.0.attn/scaled_dot_product_attention#0", "layers.0/add#0", "layers.0/add#1",
                "layers.1.attn/scaled_dot_product_attention#0", "layers.1/add#0", "layers.1/add#1", "/softmax#0"]
    assert list(h.by_name) == names_of(h) and len(h) == 7
    assert [(c.layer, c.function, c.number) for c in h][2] == ("layers.0", "add", 1)


SPELLINGS = [
    (torch.softmax, lambda t: t.softmax(-1)), (torch.Tensor.softmax, lambda t: F.softmax(t, -1)),
    (F.softmax, lambda t: torch.softmax(t, -1)), (torch.add, lambda t: t + t),
    (operator.add, lambda t: torch.add(t, t)),
    (torch.Tensor.add, lambda t: 1 + t), (torch.Tensor.__add__, lambda t: t.add(1)),
    (operator.mul, lambda t: 2*t),
    (torch.multiply, lambda t: t*t), (torch.div, lambda t: t/2), (operator.truediv, lambda t: torch.true_divide(t, 2)),
    (operator.matmul, lambda t: t.matmul(t.mT)), (torch.matmul, lambda t: t @ t.mT), (torch.sub, lambda t: t - 1),
    (torch.cat, lambda t: torch.concat([t, t])), (torch.clamp, lambda t: t.clip(0, 1)),
    (torch.relu, lambda t: F.relu(t)),
    (F.relu, lambda t: t.relu()), (torch.sigmoid, lambda t: torch.special.expit(t)), (F.gelu, lambda t: F.gelu(t)),
    (torch.Tensor.add_, lambda t: operator.iadd(t.clone(), 1)), (operator.iadd, lambda t: t.clone().add_(1)),
    (operator.getitem, lambda t: t[0]), (operator.neg, lambda t: -t), (operator.pow, lambda t: t**2),
    (torch.pow, lambda t: t.pow(2)), (operator.gt, lambda t: t > 0), (torch.ops.aten.sin, lambda t: t.sin()),
    (torch.sin, lambda t: torch.ops.aten.sin.default(t)), (operator.and_, lambda t: (t > 0) & (t < 1)),
    (operator.invert, lambda t: ~(t > 0)), (torch.rsub, lambda t: 1 - t), (operator.floordiv, lambda t: t//1),
    (F.max_pool1d, lambda t: F.max_pool1d(t, 2)), (torch.einsum, lambda t: torch.einsum("bij,bkj->bik", t, t)),
    (torch.split, lambda t: t.split(1)), (F.dropout, lambda t: F.dropout(t)), (F.layer_norm, nn.LayerNorm(8)),
    (F.linear, nn.Linear(8, 2)),
    (torch.relu_, lambda t: t.clone().relu_()),
    (torch.Tensor.norm, lambda t: torch.norm(t)), (torch.linalg.det, lambda t: torch.det(t @ t.mT)),
]


@pytest.mark.parametrize("asked, f", SPELLINGS)
def test_spellings_of_a_function_are_one_call(asked, f):
    model, t = Calls(f), torch.randn(2, 5, 8)
    expected = copy.deepcopy(model)(t) if function_name(asked) != "dropout" else None
    with hl.hook_calls(model, asked) as h: got = model(t)
    assert names_of(h) == [f"{h[0].layer}/{function_name(asked)}#0"]
    if expected is not None: torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


ALIAS = r"\s*\S*\(?[^\n]*\n+\s*Alias (?:for|of) :(?:func|meth):`~?(torch\.[\w.]+)`"


def test_aliases_are_those_that_torch_documents():
    "Read in torch's own documentation, so that a new alias is noticed."
    found = 0
    for functions in get_overridable_functions().values():
        for f in functions:
            said = re.match(ALIAS, f.__doc__ or "")
            if not said or not hasattr(f, "__name__"): continue
            target = torch
            for part in said[1].split(".")[1:]: target = getattr(target, part)
            assert function_name(f) == function_name(target), said[0]
            found += 1
    assert found > 30


def test_what_is_no_function_of_torch_is_refused():
    def gate(t): return t.sigmoid()
    for wrong, words in [(gate, "gate is a Python function"), (len, "len is not a torch function"),
                         ("softmax", "F.softmax"),
                         (nn.ReLU(), "is a layer, not a"),
                         (nn.ReLU, "is a layer, not a"), (3, "3 is not a torch function"),
                         (torch.ones(2).add, "torch.Tensor.add"), ([torch.add, gate], "gate"), (None, "None is no")]:
        with pytest.raises(TypeError, match=words): print(wrong, hl.hook_calls(Model(), wrong))
    with pytest.raises(ValueError, match="the list of functions is empty"): hl.hook_calls(Model(), [])
    model = Model()
    for options, kind, words in [({"names": "nowhere"}, LookupError, "no layer of this Model"),
                                 ({"keep": 0}, ValueError, "keep=0"),
                                 ({"kind": "forwards"}, ValueError, "forwards"), ({"f": 3}, TypeError, "function"),
                                 ({"detach": "x"}, TypeError, "detach")]:
        with pytest.raises(kind, match=words): hl.hook_calls(model, SDPA, **options)
        assert nothing_left(model)


def test_custom_operations():
    @torch.library.custom_op("hooklab_tests::twice", mutates_args=())
    def twice(t: torch.Tensor) -> torch.Tensor: return 2*t

    with hl.hook_calls(model := Calls(twice), [twice, torch.mul]) as h, warnings.catch_warnings():
        model(t := torch.ones(2))
        warnings.simplefilter("ignore")
        h.remove()  # what the operation does inside is not seen, and a warning says so
    assert names_of(h) == ["/twice#0"] and torch.equal(h[0].output, 2*t)
    assert list(wanted_functions(torch.ops.aten.add.Tensor)) == ["add"]


# What is kept

def test_records_have_copies_of_what_went_in_and_came_out():
    def f(t):
        t = t.clone()
        t.mul_(2)
        return t.add_(1).zero_()

    with hl.hook_calls(Calls(f), [torch.Tensor.mul_, torch.Tensor.add_]) as h: h.group.root(t := torch.ones(3))
    assert torch.equal(h[0].inputs[0], t) and torch.equal(h[0].output, 2*t) and h[0].inputs[1] == 2
    assert torch.equal(h[1].inputs[0], 2*t) and torch.equal(h[1].output, 3*t)


def test_detach_false_keeps_the_graph_and_says_when_a_tensor_was_changed():
    model, given = Model(), x()
    with hl.hook_calls(model, SDPA, detach=False) as h: out = model(given)
    assert torch.autograd.grad(out[..., 0].sum(), h[0].output)[0].abs().sum() > 0
    def f(t):
        t = t.exp()
        return t.mul_(2)
    with hl.hook_calls(Calls(f), torch.exp, detach=False) as h: h.group.root(torch.ones(3))
    with pytest.warns(hl.HookWarning, match="/exp#0: the stored value has been changed in place"): h[0].output


def test_f_decides_what_is_kept():
    model = Model()
    with hl.hook_calls(model, SDPA, f=lambda call: call.output) as h, hl.hook_calls(model, SDPA) as whole: model(x())
    assert all(torch.equal(a, b.output) and not a.requires_grad for a, b in zip(h, whole))
    with hl.hook_calls(model, SDPA, f=lambda call: call) as h, hl.hook_calls(model, SDPA) as whole: model(x())
    assert torch.equal(h[1].inputs[2], whole[1].inputs[2])
    with hl.hook_calls(model, SDPA, f=lambda call: call.output.mul_(2)), pytest.warns(hl.HookWarning, match="in place"):
        model(x())


def test_keep_bounds_the_calls_of_one_function_in_one_layer():
    def f(t):
        for _ in range(5): t = t + 1
        return t
    with hl.hook_calls(Calls(f), torch.add, keep=2) as h: h.group.root(torch.ones(3))
    assert names_of(h) == ["/add#3", "/add#4"]


def test_names_pick_layers_and_the_model_itself():
    model = Model()
    for names, found in [("layers.1.attn", 1), ("*attn", 2), (Attention, 2), (["layers.0.attn", "layers.1.attn"], 2)]:
        with hl.hook_calls(model, SDPA, names=names) as h: model(x())
        assert len(h) == found
    with hl.hook_calls(model, torch.softmax, names="") as h: model(x())
    assert names_of(h) == ["/softmax#0"]
    with pytest.warns(hl.HookWarning, match=r"not called in the layers selected by names='head', but in layers.0.attn"):
        with hl.hook_calls(model, SDPA, names="head"): model(x())


# Gradients

def test_gradients_of_outputs():
    model, given = Model(), x()
    with hl.hook_calls(model, [SDPA, torch.add], kind="backward") as h: model(given)[..., 0].sum().backward()
    with hl.hook_calls(model, [SDPA, torch.add], detach=False) as live: out = model(given)
    expected = torch.autograd.grad(out[..., 0].sum(), [call.output for call in live])
    assert names_of(h) == names_of(live)
    for call, gradient in zip(h, expected): torch.testing.assert_close(call.gradient, gradient)


def test_gradients_of_several_outputs_and_of_none():
    with hl.hook_calls(Calls(lambda t: sum(a*n for n, a in enumerate(t.split(1)))), torch.split, kind="backward") as h:
        h.group.root(torch.ones(3, requires_grad=True)).sum().backward()
    assert [float(g) if g is not None else None for g in h[0].gradient] == [0., 1., 2.]
    model = Model()
    with pytest.warns(hl.HookWarning, match="its output got no gradient"):
        with hl.hook_calls(model, SDPA, kind="backward"): model(x())


def test_two_forwards_before_one_backward():
    model = Model()
    with hl.hook_calls(model, SDPA, kind="backward", f=lambda call: call.gradient.norm()) as h:
        (model(x())[..., 0].sum() + model(x())[..., 1].sum()).backward()
    assert len(h) == 4 and all(norm > 0 for norm in h)


# Looking changes nothing, off means off

@pytest.mark.parametrize("train", [True, False])
def test_looking_changes_nothing(train):
    def run(hooked):
        torch.manual_seed(1)
        model = Model(dropout=.3).train(train)
        given = x().requires_grad_()
        if hooked:
            functions = [SDPA, F.linear, torch.softmax, operator.add, operator.getitem]
            with hl.hook_calls(model, functions): out = model(given)
        else: out = model(given)
        out[..., 0].sum().backward()
        return [out.detach(), given.grad, *(p.grad for p in model.parameters()), torch.get_rng_state()]
    assert all(torch.equal(a, b) for a, b in zip(run(False), run(True)))


def test_torchs_fast_paths_are_left_alone():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, batch_first=True), 2).eval()
    mask = torch.zeros(2, 5, dtype=torch.bool)
    mask[1, 3:] = True
    with torch.no_grad():
        expected = encoder(given := x(), src_key_padding_mask=mask)
        with pytest.warns(hl.HookWarning, match="set_fastpath_enabled") as warned, hl.hook_calls(encoder, SDPA) as h:
            assert torch.equal(encoder(given, src_key_padding_mask=mask), expected)
        assert len(h) == 0 and "layers.0" not in str(warned[0].message) and len(warned) == 1
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with hl.hook_calls(encoder, SDPA) as h: encoder(given)
        finally: torch.backends.mha.set_fastpath_enabled(True)
    assert names_of(h) == [f"layers.{i}.self_attn/scaled_dot_product_attention#0" for i in range(2)]
    with hl.hook_calls(encoder.train(), SDPA) as h: encoder(given)
    assert len(h) == 2


def test_inside_functions_that_are_written_in_python():
    layer, given = nn.MultiheadAttention(8, 2, batch_first=True), x()
    with hl.hook_calls(layer, [F.multi_head_attention_forward, F.linear, torch.softmax, torch.bmm]) as h:
        layer(given, given, given)
    seen = [name for name in names_of(h) if "bmm" not in name]
    assert seen == ["/linear#0", "/softmax#0", "/linear#1", "/multi_head_attention_forward#0"]


def test_the_body_of_a_function_is_the_function():
    "It sees what is changed in its module later, and functions that are not Python have no body."
    assert body_of(torch.sin) is None and body_of(F.gelu) is None and body_of(lambda t: t) is None
    body, t = body_of(F.softmax), torch.randn(3, 4)
    assert torch.equal(body(t, -1), F.softmax(t, -1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(F, "_get_softmax_dim", lambda *args: 0)
        with warnings.catch_warnings(): assert torch.equal(body(t), F.softmax(t, 0))


def test_exceptions_leave_nothing():
    def fails(t): raise ValueError("here")
    model, broken = Model(), Model()
    broken.layers[1].attn = Calls(fails)
    with pytest.raises(ValueError, match="here"), hl.hook_calls(broken, SDPA) as h: broken(x())
    assert nothing_left(broken) and len(h) == 1
    with pytest.raises(ZeroDivisionError), hl.hook_calls(model, SDPA, f=lambda call: 1/0): model(x())
    assert nothing_left(model)
    with hl.hook_calls(broken, SDPA) as h:  # a pass after one that failed
        with pytest.raises(ValueError): broken(x())
        broken.layers[1].attn.f = torch.sin
        broken(x())
        assert names_of(h) == ["layers.0.attn/scaled_dot_product_attention#0"]


def test_ctrl_c_leaves_nothing():
    def interrupt(t): raise KeyboardInterrupt
    model = Model()
    model.layers[1].attn = Calls(interrupt)
    with pytest.raises(KeyboardInterrupt), hl.hook_calls(model, SDPA): model(x())
    assert nothing_left(model)
    h = hl.hook_calls(model, SDPA)
    with pytest.raises(KeyboardInterrupt): model(x())
    model.layers[1].attn = Attention()  # not hooked, since it came later
    model(x())
    assert not _get_current_function_mode_stack()
    h.remove()
    assert len(h) == 2 and nothing_left(model)


def test_removed_while_the_model_runs():
    model = Model()
    handle = model.layers[1].attn.register_forward_pre_hook(lambda m, given: h.remove())
    h = hl.hook_calls(model, SDPA)
    model(x())
    handle.remove()
    assert len(h) == 1 and h.removed and nothing_left(model)
    h.clear()
    assert not len(h)


def test_modes_of_other_code_stay():
    class Counting(TorchFunctionMode):
        n = 0
        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.n += func is SDPA
            return func(*args, **(kwargs or {}))

    model = Model()
    with Counting() as outside, hl.hook_calls(model, SDPA) as h, hl.hook_calls(model, [torch.softmax, SDPA]) as other:
        model(x())
        assert _get_current_function_mode_stack() == [outside]
    assert outside.n == 2 and len(h) == 2 and len(other) == 3 and nothing_left(model)


def test_our_own_work_is_not_seen():
    model = Model()
    with hl.hook_calls(model, [torch.clone, torch.Tensor.detach, torch.sum, SDPA]) as h, warnings.catch_warnings():
        with hl.hook_outputs(model, names="*"), hl.hook_calls(model, SDPA), hl.ActivationStats().on(model) as s:
            model(x())
            s.step()
        warnings.simplefilter("ignore")
        h.remove()
    assert [call.function for call in h] == ["scaled_dot_product_attention"]*2


def test_copies_and_pickles_have_no_hook_and_a_hook_holds_nothing():
    model = Model()
    h = hl.hook_calls(model, SDPA)
    model(x())
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))): assert not hl.hooks_on(twin)
    assert pickle.loads(pickle.dumps(h[0])).name == h[0].name
    assert len(hl.hooks_on(model))
    hl.remove_hooks(model)
    assert nothing_left(model) and h.removed and len(h) == 2
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_threads_do_not_mix():
    model, together = Model(), threading.Barrier(2)
    found = {}
    def wait(m, given): together.wait(5)
    model.layers[1].register_forward_pre_hook(wait)
    given = {n: x() for n in range(2)}
    with torch.no_grad(), hl.hook_calls(model, SDPA) as h:
        def run(n):
            with torch.no_grad(): found[n] = model(given[n])
        threads = [threading.Thread(target=run, args=(n,)) for n in range(2)]
        for t in threads: t.start()
        for t in threads: t.join()
        assert len(h) == 4 and sorted({call.number for call in h}) == [0]
    assert all(torch.equal(found[n], model_output) for n, model_output in enumerate(_alone(model, given)))


def _alone(model, given):
    model.layers[1]._forward_pre_hooks.clear()
    with torch.no_grad(): return [model(given[n]) for n in range(2)]


# Passes

def test_passes_begin_with_the_model():
    model = Model()
    with hl.hook_calls(model, SDPA) as h:
        model(x())
        first = h[0].output
        model.layers[1](x())  # by itself: the rest stays
        assert len(h) == 2 and torch.equal(h[0].output, first)
        model.head(torch.randn(2, 8))
        assert len(h) == 2
        model(x())
        assert len(h) == 2 and not torch.equal(h[0].output, first)


def test_a_model_without_a_forward_has_passes_of_its_layers():
    layers = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Sequential(nn.ReLU())})
    with hl.hook_calls(layers, torch.relu) as h:
        for _ in range(2): layers["b"](layers["a"](x()))
    assert names_of(h) == ["a/relu#0", "b.0/relu#0"]


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_is_no_other_call(reentrant):
    class Checkpointed(Model):
        def forward(self, t):
            for layer in self.layers: t = checkpoint(layer, t, use_reentrant=reentrant)
            return self.head(t)

    model = Checkpointed()
    with hl.hook_calls(model, SDPA) as h: model(x().requires_grad_()).sum().backward()
    assert [call.number for call in h] == [0, 0] and nothing_left(model)


# Silence

def test_silence_is_reported():
    model = Model()
    words = r"log_softmax: never called while the model ran; it called softmax \(in the model"
    with pytest.warns(hl.HookWarning, match=words):
        with hl.hook_calls(model, [SDPA, torch.log_softmax]): model(x())
    with pytest.warns(hl.HookWarning, match="the model was not called"):
        with hl.hook_calls(model, SDPA): pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hl.hook_calls(model, SDPA).remove()
        with hl.hook_calls(model, SDPA): model(x())


def test_custom_autograd_functions_are_seen_inside():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t): return t.mul(2)
        @staticmethod
        def backward(ctx, g): return g.mul(2)

    model = Calls(Twice.apply)
    with hl.hook_calls(model, torch.mul) as h: model(torch.ones(2, requires_grad=True)).sum().backward()
    assert names_of(h) == ["/mul#0"]


def test_vmap_and_grad():
    with hl.hook_calls(Calls(torch.vmap(lambda t: t.softmax(0))), torch.softmax) as h: out = h.group.root(x())
    assert torch.equal(h[0].output.flatten().sort().values, out.flatten().sort().values)


# Subclasses and compiled code

def test_subclasses_of_tensors():
    class Named(torch.Tensor): pass
    model, given = Model(), x().as_subclass(Named)
    expected = model(given)
    with hl.hook_calls(model, [SDPA, torch.softmax]) as h: out = model(given)
    assert type(out) is type(expected) and torch.equal(out, expected) and len(h) == 3


def test_copies_of_subclasses_have_their_attributes():
    "A causal bias holds no numbers: without its attributes it would be another mask."
    from torch.nn.attention.bias import causal_lower_right
    model, (q, k, v) = Calls(SDPA), torch.randn(3, 1, 2, 5, 8)
    mask = causal_lower_right(3, 5)
    for options in ({}, {"f": lambda call: SDPA(*call.inputs, **call.kwargs)}, {"detach": False}):
        with hl.hook_calls(model, SDPA, **options) as h: expected = model(q[:, :, :3], k, v, mask)
        again = h[0] if "f" in options else SDPA(*h[0].inputs, **h[0].kwargs)
        torch.testing.assert_close(again, expected)


def test_the_function_of_a_hook_works_on_the_device_that_is_set():
    with torch.device("meta"), hl.hook_calls(Calls(torch.sin), torch.sin, f=lambda call: torch.zeros(2).is_meta) as h:
        h.group.root(torch.ones(3))
    assert h[0] is True


def test_compiled_layers_are_named_and_stay_whole():
    import torch._dynamo.testing
    model, given = Model(), x()
    compiled = torch._dynamo.testing.CompileCounter()
    model.layers[1].compile(backend=compiled, fullgraph=True)
    expected = model(given)
    with pytest.warns(hl.HookWarning, match=r"layers\.1: compiled.*force_eager"):
        with hl.hook_calls(model, SDPA) as h:
            for _ in range(3): out = model(given)
    assert names_of(h) == ["layers.0.attn/scaled_dot_product_attention#0"] and compiled.frame_count == 2
    torch.testing.assert_close(out, expected)
    with torch.compiler.set_stance("force_eager"), hl.hook_calls(model, SDPA) as h: model(given)
    assert len(h) == 2
    whole = torch.compile(Model(), backend="eager", fullgraph=True)
    with pytest.warns(hl.HookWarning, match="the model: compiled"), hl.hook_calls(whole, SDPA): whole(given)
    assert nothing_left(model) and nothing_left(whole)


@pytest.mark.gpu
def test_on_a_gpu_nothing_waits():
    model, given = Model().cuda(), x().cuda()
    with hl.hook_calls(model, SDPA) as h:
        model(given)
        torch.cuda.set_sync_debug_mode("error")
        try: model(given)
        finally: torch.cuda.set_sync_debug_mode("default")
    assert h[0].output.is_cuda


# ---- taken off during a call of their own

@pytest.mark.parametrize("again", [False, True])
def test_hooks_that_take_themselves_off_during_their_call_leave_no_mode_on(again):
    model, x, seen = Model().eval(), torch.randn(2, 4, 8), []

    def once(call):
        seen.append(call.name)
        first.remove()
        if again: first.remove()

    first = hl.hook_calls(model, SDPA, f=once)
    with hl.hook_calls(model, SDPA) as second: found = model(x)
    assert first.removed and len(seen) == 1 and len(second) == 2 and nothing_left(model)
    assert torch.equal(model(x), found) and len(seen) == 1


def test_edits_that_take_themselves_off_during_their_call_leave_no_mode_on():
    model, x = Model().eval(), torch.randn(2, 4, 8)
    plain = model(x)
    first = hl.edit_calls(model, SDPA, lambda call: first.remove())
    assert torch.equal(model(x), plain) and first.removed and nothing_left(model)
    assert torch.equal(model(x), plain)


@pytest.mark.parametrize("how", ["the next pass", "once more", "all"])
def test_after_an_error_hooks_that_took_themselves_off_are_gone_before_the_next_pass(how):
    def fails(q, k, v):
        SDPA(q, k, v)
        raise ValueError("in the model")

    model, q, seen = nn.Sequential(Calls(lambda x: fails(x, x, x))), torch.randn(1, 2, 3, 4), []
    first = hl.hook_calls(model, SDPA, f=lambda call: (seen.append(call), first.remove()))
    with pytest.raises(ValueError, match="in the model"): model(q)
    assert not _get_current_function_mode_stack()
    if how == "the next pass":
        with pytest.raises(ValueError, match="in the model"): model(q)
    elif how == "once more": first.remove()
    else: hl.remove_hooks(model)
    assert first.removed and len(seen) == 1 and nothing_left(model)


@pytest.mark.parametrize("name", ["mm", "softmax", "log_softmax", "addmm", "sum"])
def test_functions_of_torch_sparse(name):
    a, b, function = torch.eye(3).to_sparse(), torch.ones(3, 3), getattr(torch.sparse, name)
    given = {"mm": (a, b), "addmm": (b, a, b), "sum": (a,)}.get(name, (a, 1))
    model = nn.Sequential(Calls(lambda x: function(*given)))
    with hl.hook_calls(model, function) as hooks: model(b)
    assert names_of(hooks) == [f"0/sparse_{name}#0"]
