"""Gradients against torch: its own full backward hooks where they work, hooks on copies and plain autograd where they do not."""
import warnings

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings, strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

import hooklab as hl
from hooklab.hooks.tree import map_tensors
from support.traces import buffers, difference, loss, ours, run, same
from support.whole_models import check_gradients, check_untouched, same_calls


@pytest.fixture(autouse=True)
def strict():
    "No warning is expected here, of ours or of torch."
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ResourceWarning)  # of what an earlier test has left to be collected
        yield


def both(m, grad_in, grad_out): return grad_in, grad_out


def as_torch_sees(model, inputs, forward=None) -> dict[str, list]:
    "Per layer, what torch's full backward hooks are given, the calls in the order in which gradients arrive."
    seen, handles = {}, []
    for name, m in hl.layers(model).items():
        def look(m, grad_in, grad_out, name=name): seen.setdefault(name, []).append(map_tensors(torch.clone, (grad_in, grad_out)))
        handles.append(m.register_full_backward_hook(look))
    run(model, inputs, forward=forward)
    for handle in handles: handle.remove()
    return {name: calls[::-1] for name, calls in seen.items()}


def close(ours, torchs) -> bool:
    "Equal but for rounding, wherever torch has a gradient: it does not look into containers."
    if torchs is None: return True
    if isinstance(torchs, torch.Tensor): return torch.allclose(ours, torchs, rtol=1e-4, atol=1e-6)
    return len(ours) == len(torchs) and all(map(close, ours, torchs))


def check_as_torch(model, inputs, forward=None):
    start = buffers(model)
    plain = run(model, inputs, start, forward)
    with hl.Hooks(model, both, is_forward=False, names="*") as hooks:
        hooked = run(model, inputs, start, forward)
        seen = {h.name: h.calls for h in hooks if h.n_calls}
    assert difference(plain, hooked) == [] and ours(model) == []
    expected = as_torch_sees(model, inputs, forward)
    assert seen.keys() == expected.keys()
    for name in seen:
        if isinstance(model.get_submodule(name), nn.MultiheadAttention): assert whole_share(*seen[name], *expected[name])
        else: assert len(seen[name]) == len(expected[name]) and all(map(close, seen[name], expected[name])), name


def whole_share(ours, torchs) -> bool:
    "One tensor was passed as queries, keys and values: torch makes three of it (and with them another graph), we show its one share in each place."
    return all(close(g, sum(torchs[0])) for g in ours[0])


class Attention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
    def forward(self, x): return self.o(F.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x)))


class Block(nn.Module):
    def __init__(self, d=8, inplace=False):
        super().__init__()
        self.attention, self.feed = Attention(d), nn.Sequential(nn.Linear(d, d), nn.ReLU(inplace), nn.Linear(d, d))
    def forward(self, x):
        x = x + self.attention(x)
        return x + self.feed(x)


def x(*shape): return {"input": torch.randn(*shape, requires_grad=True)}


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 4))
    def forward(self, input): return (self.net(input) - self.net(input*2 + 1)).pow(2).sum()


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.cell, self.out = nn.LSTM(8, 4, batch_first=True), nn.GRUCell(4, 4), nn.Linear(4, 2)
    def forward(self, input):
        y, (h, c) = self.rnn(input)
        state = c[0]
        for step in y.unbind(1): state = self.cell(step, state)
        return self.out(state)


class Heads(nn.Module):
    "Several outputs, one of them unused, one without gradients."
    def __init__(self):
        super().__init__()
        self.heads, self.end = Split(), nn.Linear(4, 1)
    def forward(self, input):
        a, b, unused, where = self.heads(input)
        return self.end(a*b)


class Split(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 4), nn.Linear(8, 4)
    def forward(self, x):
        a = self.a(x)
        return a, self.b(x), a*2, a.argmax(-1)


@pytest.mark.parametrize("build", [
    lambda: (nn.Sequential(Block(), Block(), nn.Linear(8, 2)), x(3, 5, 8)),
    lambda: (Siamese(), x(3, 8)),
    lambda: (Recurrent(), x(3, 5, 8)),
    lambda: (Heads(), x(3, 8)),
    lambda: (nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.), 2, enable_nested_tensor=False), {"src": torch.randn(5, 3, 8, requires_grad=True)}),
    lambda: (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2)), x(2, 3, 8, 8)),
    lambda: (nn.Sequential(nn.Linear(8, 4), nn.GELU(), nn.Linear(4, 1)).double(), {"input": torch.randn(3, 8, dtype=torch.double)}),
], ids=["residual attention", "siamese", "recurrent", "several outputs", "encoder", "convolution", "no gradient of the input"])
def test_as_full_backward_hooks(build):
    torch.manual_seed(0)
    model, inputs = build()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*out_proj: hooked, but never called.*")  # MultiheadAttention only borrows its weights
        warnings.filterwarnings("ignore", message="Full backward hook is firing when gradients are computed with respect to module outputs")
        check_as_torch(model, inputs)


def test_in_place_layers_as_their_twins():
    "In-place layers, on which torch's full hooks raise, see what their twins that are not in place see."
    inputs, seen = x(2, 3, 8, 8), {}
    for inplace in (True, False):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace), nn.MaxPool2d(2), nn.Sequential(nn.Flatten(), nn.Linear(36, 4)),
                              nn.Hardswish(inplace), nn.Unflatten(0, (2, 1)), Block(4, inplace), nn.Dropout(0.5, inplace), nn.LeakyReLU(0.1, inplace))
        start = buffers(model)
        plain = run(model, inputs, start)
        with hl.Hooks(model, both, is_forward=False, names="*") as hooks:
            assert difference(plain, run(model, inputs, start)) == []
            seen[inplace] = {h.name: h.calls for h in hooks}
    for name in seen[True]: assert all(map(close, seen[True][name], seen[False][name])), name


def test_in_place_on_a_view():
    torch.manual_seed(0)
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(18, 2))
    image = torch.randn(2, 2, 3, 3, requires_grad=True)
    with hl.Hooks({"act": model[0], "all": model}, both, is_forward=False) as hooks:
        base = image*1
        (model(base.flatten(1)).sum() + base.sum()).backward()  # base was changed as well: this path goes through the layer, too
        (at_act,), _ = hooks["act"].stored
        (at_all,), _ = hooks["all"].stored
    assert torch.equal(at_act.view_as(image), image.grad) and torch.equal(at_act, at_all)


class View(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f
    def forward(self, x): return self.f(x)


@pytest.mark.parametrize("view", [lambda x: x.flatten(1), lambda x: x.view(2, 4, -1), lambda x: x.transpose(1, 2), lambda x: x[None], lambda x: x.unsqueeze(1).mT],
                         ids=["flatten", "view", "transpose", "one more", "two views"])
@pytest.mark.parametrize("grad_only", [True, False])
def test_whole_view_changed_in_place(view, grad_only):
    "The gradient of a view that a later layer overwrites is that of its twin that is left alone; so is the input's."
    seen = {}
    for inplace in (True, False):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 2, 3), View(view), nn.Dropout(0.), nn.LeakyReLU(0.1, inplace))
        image, weights = torch.randn(2, 1, 4, 4), torch.randn(16)
        with hl.Hooks(model, both, kind="backward_pre" if grad_only else "backward", names="*") if not grad_only else hl.hook_outputs(model, names="*", grad=True) as hooks:
            (model(image).flatten()*weights).sum().backward()
        seen[inplace] = [h.calls for h in hooks]
        assert all(len(calls) == 1 for calls in seen[inplace])
    for ours, twins in zip(seen[True], seen[False]): assert close(ours[0], twins[0]), (ours, twins)


def test_view_of_a_part_changed_in_place_is_reported():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), View(lambda x: x[:, 0]), nn.ReLU(inplace=True))
    with pytest.warns(hl.HookWarning, match="1: ran, but no gradient reached it"):
        with hl.Hooks(model, both, is_forward=False, names="*") as hooks:
            model(torch.randn(2, 1, 4, 4)).sum().backward()
            assert hooks["0"].n_calls == hooks["2"].n_calls == 1 and hooks["1"].stored is None


@pytest.mark.parametrize("first", ["backward", "backward_pre"])
@pytest.mark.parametrize("needs", [True, False])
@pytest.mark.parametrize("layer", [lambda: nn.Linear(3, 3), nn.Identity, lambda: nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))], ids=["linear", "identity", "two"])
def test_backward_pre_comes_first(first, needs, layer):
    "As in torch, whichever was attached first, whether its input needs gradients or not."
    order, m = [], layer()
    kinds = [first, "backward" if first == "backward_pre" else "backward_pre"]
    hooks = [hl.Hook(m, lambda m, *given, kind=kind: order.append(kind), kind=kind) for kind in kinds]
    x = torch.randn(2, 3, requires_grad=needs)
    y = m(x) if needs or not isinstance(m, nn.Identity) else m(torch.randn(2, 3, requires_grad=True)*1)
    y.sum().backward()
    assert order == ["backward_pre", "backward"]
    for h in hooks: h.remove()


def test_generator_and_discriminator():
    torch.manual_seed(0)
    generator, judge = nn.Sequential(nn.Linear(2, 4), nn.ReLU(inplace=True), nn.Linear(4, 3)), nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(0.1, True), nn.Linear(4, 1))
    noise, real = torch.randn(5, 2), torch.randn(5, 3)
    with hl.hook_outputs(judge, names="2", grad=True) as judged, hl.hook_outputs(generator, names="2", grad=True) as made:
        fake = generator(noise)
        F.softplus(-judge(real)).mean().backward()
        assert judged["2"].n_calls == 1 and made["2"].n_calls == 0
        (F.softplus(judge(fake.detach()))*2 + F.softplus(-judge(real))).mean().backward()  # two passes, one backward: both are seen
        assert [g.sum().sign() for (g,) in judged["2"].calls] == [1, -1] and made["2"].n_calls == 0
        score = judge(fake)
        F.softplus(-score).mean().backward()
        (at_score,), (at_fake,) = judged["2"].stored, made["2"].stored
    torch.testing.assert_close(at_score, -torch.sigmoid(-score.detach())/5)
    torch.testing.assert_close(at_fake, torch.autograd.grad(F.softplus(-judge(t := fake.detach().requires_grad_())).mean(), t)[0])


def test_siamese_in_one_pass_keeps_both_calls():
    torch.manual_seed(0)
    model, a, b = nn.Linear(3, 2), torch.randn(4, 3), torch.randn(4, 3)
    with hl.hook_output(model, grad=True, keep=2) as h:
        left, right = model(a), model(b)
        (left*2 + right*3).sum().backward()
        assert h.n_calls == 2 and [g[0][0, 0].item() for g in h.calls] == [2, 3]


class Dict(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 2), nn.Linear(3, 2)
    def forward(self, x, scale=1, *, mask=None): return {"logits": self.a(x)*scale, "aux": {"b": self.b(x), "n": 3}}


def test_dict_outputs_and_keyword_arguments():
    torch.manual_seed(0)
    model, t, mask = Dict(), torch.randn(4, 3, requires_grad=True), torch.randn(4, 1)
    with hl.Hook(model, lambda m, *given: given, is_forward=False, with_kwargs=True) as h:
        out = model(x=t, scale=2, mask=mask)
        (out["logits"].sum() + out["aux"]["b"].pow(2).sum()).backward()
        args, kwargs, grads = h.stored
    assert args == () and kwargs["scale"] is None and kwargs["mask"] is None
    torch.testing.assert_close(kwargs["x"], t.grad)
    assert torch.equal(grads["logits"], torch.ones(4, 2)) and torch.equal(grads["aux"]["b"], 2*out["aux"]["b"]) and grads["aux"]["n"] is None


def test_only_some_gradients_asked_for():
    "autograd.grad for one input: a layer that is not on the way has none, and the next backward pass starts afresh."
    torch.manual_seed(0)
    model = Dict()
    t = torch.randn(4, 3, requires_grad=True)
    with hl.Hook(model, both, is_forward=False) as h:
        out = model(t)
        torch.autograd.grad(out["logits"].sum(), model.a.weight, retain_graph=True)
        (grad_in,), grad_out = h.stored
        assert grad_in is None and grad_out["aux"]["b"] is None and torch.equal(grad_out["logits"], torch.ones(4, 2))
        loss(out).backward()
        (grad_in,), grad_out = h.stored
        torch.testing.assert_close(grad_in, t.grad)
        assert grad_out["aux"]["b"] is not None and h.n_calls == 2


def test_second_order():
    "A gradient penalty: the first pass makes a graph of its own; both passes are seen, the result is the same."
    torch.manual_seed(0)
    model, t = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), torch.randn(5, 3, requires_grad=True)
    def penalty():
        model.zero_grad()
        g, = torch.autograd.grad(model(t).sum(), t, create_graph=True)
        g.pow(2).sum().backward()
        return [p.grad for p in model.parameters()]
    plain = penalty()
    with hl.Hooks(model, both, is_forward=False, names="*") as hooks:
        assert all(map(same, plain, penalty()))
        assert all(h.fired and not any(g.requires_grad for g in hl.tensors(h.stored)) for h in hooks)


def test_frozen_layers_pass_gradients_on():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    model[2].requires_grad_(False)
    with hl.Hooks(model, both, is_forward=False, names="*") as hooks:
        y = model(torch.randn(5, 3))
        y.sum().backward()
        assert torch.equal(hooks["2"].stored[0][0], torch.ones(5, 2) @ model[2].weight) and hooks["0"].stored[0] == (None,)


# --- activation checkpointing
class Recomputed(nn.Module):
    def __init__(self, reentrant, inplace=True):
        super().__init__()
        self.blocks, self.shared = nn.ModuleList(Block(8, inplace) for _ in range(3)), nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Identity())
        self.pass_on, self.reentrant = PassOn(), reentrant

    def again(self, f, *given): return f(*given) if self.reentrant is None else checkpoint(f, *given, use_reentrant=self.reentrant)

    def forward(self, input):
        h = input*1
        for block in self.blocks: h = self.again(block, h)
        h, bias = self.again(self.pass_on, h, h.mean(0))
        return self.again(self.shared, h) + bias


class PassOn(nn.Module):
    "Returns an input as it is, besides using it."
    def forward(self, x, bias): return x + bias, bias


@pytest.mark.parametrize("rooted", [True, False])
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed(reentrant, rooted):
    "What is seen is what is seen without: each call once, each gradient once, and the same values."
    seen = []
    for mode in (None, reentrant):
        torch.manual_seed(0)
        model = Recomputed(mode)
        inputs = x(2, 3, 8)
        plain = run(model, inputs)
        hooks = [hl.Hooks(hl.layers(model), lambda m, *given: given, kind=kind, root=model if rooted else None) for kind in ("forward", "backward")]
        assert difference(plain, run(model, inputs)) == []
        seen.append([{h.name: (h.n_calls, h.calls) for h in group} for group in hooks])
        for group in hooks: group.remove()
        assert ours(model) == []
    for kind, once, again in zip(("forward", "backward"), *seen):
        for name in once:
            assert once[name][0] == again[name][0] == 1, (kind, name)
            if mode and name == "pass_on" and kind == "backward": continue  # torch hands the checkpointed layer a copy of its input
            assert same_calls(once[name][1], again[name][1]), (kind, name)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_and_shared(reentrant):
    torch.manual_seed(0)
    layer, t = nn.Linear(3, 3), torch.randn(2, 3, requires_grad=True)
    with hl.hook_output(layer, keep=9) as h, hl.hook_output(layer, grad=True, keep=9) as g:
        y = t
        for k in range(3): y = checkpoint(layer, y, use_reentrant=reentrant)
        y.sum().backward()
        assert h.n_calls == g.n_calls == 3 and same(h.stored, y.detach())
        assert torch.equal(g.calls[-1 if not reentrant else 0][0], torch.ones(2, 3))


# --- random graphs
class Operation(nn.Module):
    "One of many things that a layer may do with one or two inputs."
    KINDS = {
        "linear": lambda m, a, b: m.linear(a), "tanh": lambda m, a, b: a.tanh(), "add": lambda m, a, b: a + b, "multiply": lambda m, a, b: a*b,
        "residual": lambda m, a, b: m.linear(a) + a, "in place on its own": lambda m, a, b: F.relu(m.linear(a), inplace=True),
        "views": lambda m, a, b: a.view(len(a), 2, -1).transpose(1, 2).reshape(a.shape), "parts": lambda m, a, b: torch.cat(a.chunk(2, -1)[::-1], -1),
        "several": lambda m, a, b: (m.linear(a), a*2), "passes on": lambda m, a, b: (m.linear(a), a), "detaches": lambda m, a, b: a.detach()*b,
        "writes into": lambda m, a, b: m.written(a), "normalizes": lambda m, a, b: F.layer_norm(a, a.shape[-1:]), "drops": lambda m, a, b: F.dropout(a),
        "half without gradients": lambda m, a, b: m.without(a) + a, "returns its input": lambda m, a, b: a,
        "a leaf": lambda m, a, b: a + m.linear.bias, "in place on its input": lambda m, a, b: a if a.is_leaf else a.mul_(0.5),
        "in place on a part of its input": lambda m, a, b: a*2 if a.is_leaf else m.halved(a),
    }

    def __init__(self, kind):
        super().__init__()
        self.kind, self.linear = kind, nn.Linear(8, 8)

    def forward(self, a, b): return self.KINDS[self.kind](self, a, b)

    def written(self, a):
        y = self.linear(a)
        y[:, :2] = a[:, 2:4]
        return y

    def without(self, a):
        with torch.no_grad(): return self.linear(a)

    def halved(self, a):
        a[:, :2].mul_(0.5)
        return a.tanh()


class Random(nn.Module):
    "Each step takes two of what there is already; some steps run a layer that has run before."
    def __init__(self, steps):
        super().__init__()
        self.layers, self.steps = nn.ModuleList(Operation(kind) for kind, *_ in steps), steps

    def forward(self, input):
        there = [input, input*1.]
        for i, (kind, a, b, again) in enumerate(self.steps):
            out = self.layers[again % (i + 1)](there[a % len(there)], there[b % len(there)])
            there += out if isinstance(out, tuple) else [out]
        return there[-3:]


def steps(kinds):
    number = st.integers(0, 30)
    return st.lists(st.tuples(st.sampled_from(kinds), number, number, number), min_size=1, max_size=8)


ON_ITS_INPUT = [kind for kind in Operation.KINDS if "its input" in kind and "in place" in kind]


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(steps([kind for kind in Operation.KINDS if kind not in ON_ITS_INPUT]))
def test_random_graphs(steps):
    torch.manual_seed(0)
    model, inputs = Random(steps), x(3, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        gradients = check_untouched(model, inputs)
        check_gradients(model, inputs, gradients, buffers(model))


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(steps(list(Operation.KINDS)))
def test_random_graphs_in_place(steps):
    "With layers that change what others hold: copies cannot tell what is right, but nothing changes."
    torch.manual_seed(0)
    model, inputs = Random(steps), x(3, 8)
    try: run(model, inputs)
    except RuntimeError: return  # what was changed is needed for a gradient
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        check_untouched(model, inputs)
