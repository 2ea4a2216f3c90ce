"""Whatever a layer returns, and in whatever order hooks come, go and fail: nothing is left, and nothing has changed."""
import copy
import dataclasses
import pickle
import warnings
from collections import OrderedDict, defaultdict, namedtuple

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import hooklab as hl
from support.traces import buffers, difference, loss, ours, run

calm = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


# --- containers
Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Parts:
    first: object
    second: object = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    only: object


class Named(OrderedDict):
    "An OrderedDict that knows more than its items."
    note = None


class Row(list):
    "A list of a type of its own."


def named(parts):
    made = Named((f"k{i}", part) for i, part in enumerate(parts))
    made.note = "kept"
    return made


CONTAINERS = {
    tuple: tuple, list: list, Row: Row, Pair: lambda p: Pair(p[0], p[-1]), Parts: lambda p: Parts(p[0], p[1:] or None),
    Frozen: lambda p: Frozen(p[0]), Named: named, dict: lambda p: {i: part for i, part in enumerate(p)},
    defaultdict: lambda p: defaultdict(list, {str(i): part for i, part in enumerate(p)}),
}
LEAVES = {
    "new": lambda x: x*2, "input": lambda x: x, "view": lambda x: x[:, 1:], "flat": lambda x: x.flatten(), "transposed": lambda x: x.T,
    "scalar": lambda x: x.mean(), "empty": lambda x: x[:0], "detached": lambda x: x.detach()*3, "whole numbers": lambda x: torch.arange(3),
    "complex": lambda x: torch.complex(x, x + 1), "half": lambda x: x.bfloat16(), "expanded": lambda x: x[:1].expand(5, -1),
    "packed": lambda x: pack_padded_sequence(x[..., None], torch.tensor([4, 2, 2]), batch_first=True), "two at once": lambda x: torch.unbind(x)[:2],
    "sparse": lambda x: x.detach().to_sparse(), "none": lambda x: None, "number": lambda x: 3, "text": lambda x: "label", "nothing": lambda x: (),
}
shapes = st.recursive(st.sampled_from(list(LEAVES)),
                      lambda inner: st.tuples(st.sampled_from(list(CONTAINERS)), st.lists(inner, min_size=1, max_size=3)), max_leaves=6)


def build(shape, x):
    if isinstance(shape, str): return LEAVES[shape](x)
    kind, parts = shape
    return CONTAINERS[kind]([build(part, x) for part in parts])


class Tangle(nn.Module):
    "Returns what `shape` says, made from its input."
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
    def forward(self, x): return build(self.shape, x)


class Net(nn.Module):
    "A layer that returns anything, between ordinary ones; what it returned is changed in place where autograd allows it."
    def __init__(self, shape):
        super().__init__()
        self.enter, self.norm, self.tangle, self.leave = nn.Linear(3, 4), nn.BatchNorm1d(4), Tangle(shape), nn.Linear(1, 2)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        x = self.drop(self.norm(self.enter(x)))
        parts = [t for t in flat(self.tangle(x)) if t.numel() and t.layout == torch.strided]
        for t in parts:
            if not t.is_complex() and t.is_floating_point() and t.requires_grad and not t._is_view() and t is not x: t.mul_(2)
        total = x.sum() + sum(t.abs().float().sum() for t in parts)
        return self.leave(total[None])


def flat(x) -> list[Tensor]:
    "The tensors in what `build` makes, found without hooklab."
    if isinstance(x, Tensor): return [x]
    if isinstance(x, PackedSequence): return [x.data]
    if dataclasses.is_dataclass(x): return flat(list(vars(x).values()))
    if isinstance(x, dict): return flat(list(x.values()))
    return [t for part in x for t in flat(part)] if isinstance(x, list | tuple) else []


def alike(a, b) -> bool:
    "The same containers of the same types around tensors with the same bits."
    if isinstance(a, Tensor): return type(a) is type(b) and a.dtype == b.dtype and a.layout == b.layout and torch.equal(dense(a), dense(b))
    if type(a) is not type(b): return False
    if isinstance(a, PackedSequence): return torch.equal(a.data, b.data) and torch.equal(a.batch_sizes, b.batch_sizes)
    if dataclasses.is_dataclass(a): return alike(vars(a), vars(b))
    if isinstance(a, dict): return list(a) == list(b) and alike(list(a.values()), list(b.values())) and vars(a) == vars(b) if isinstance(a, Named) else list(a) == list(b) and all(map(alike, a.values(), b.values()))
    if isinstance(a, list | tuple): return len(a) == len(b) and all(map(alike, a, b))
    return a == b


def dense(t): return t.to_dense() if t.is_sparse else t


def net_and_inputs(shape):
    torch.manual_seed(0)
    return Net(shape), {"x": torch.randn(3, 3, requires_grad=True)}


@calm
@given(shapes)
def test_what_is_stored_is_what_the_layer_returned(shape):
    model, inputs = net_and_inputs(shape)
    seen = []
    handle = model.tangle.register_forward_hook(lambda m, i, o: seen.append(build_copy(o)))
    with hl.hook_output(model.tangle) as h:
        run(model, inputs)
        stored = h.stored
    handle.remove()
    assert alike(stored, seen[0])
    assert not any(t.requires_grad for t in flat(stored))


def build_copy(x):
    "A copy of the containers and the tensors in `x`, made without hooklab."
    if isinstance(x, Tensor): return x.detach().clone()
    if isinstance(x, PackedSequence): return x._replace(data=x.data.detach().clone())
    if isinstance(x, Parts | Frozen): return type(x)(*map(build_copy, vars(x).values()))
    if isinstance(x, Pair): return Pair(*map(build_copy, x))
    if isinstance(x, Named): return named([build_copy(part) for part in x.values()])
    if isinstance(x, defaultdict): return defaultdict(list, {key: build_copy(part) for key, part in x.items()})
    if isinstance(x, dict): return {key: build_copy(part) for key, part in x.items()}
    return type(x)(map(build_copy, x)) if isinstance(x, list | tuple) else x


@calm
@given(shapes)
def test_gradients_of_outputs_are_those_of_the_tensors(shape):
    model, inputs = net_and_inputs(shape)
    wanted = []
    def ask(m, i, out):
        for number, t in enumerate(flat(out)):
            wanted.append(None)
            if t.requires_grad: t.register_hook(lambda g, number=number: wanted.__setitem__(number, g.clone()))
    handle = model.tangle.register_forward_hook(ask)
    with hl.hook_output(model.tangle, grad=True) as h, warnings.catch_warnings():
        warnings.simplefilter("ignore", hl.HookWarning)  # nothing in it needs a gradient
        run(model, inputs)
        found = [] if h.stored is None else gradients_in(h.stored)
        h.remove()
    handle.remove()
    wanted = [g for g in wanted if g is not None]
    assert len(found) == len(wanted) and all(map(torch.equal, found, wanted))


def gradients_in(x): return [t for t in flat(x)]


@calm
@given(shapes, st.booleans(), st.booleans(), st.booleans())
def test_nothing_changes(shape, detach, rooted, with_kwargs):
    model, inputs = net_and_inputs(shape)
    start, keys = buffers(model), list(model.state_dict())
    plain = run(model, inputs, start)
    layers = hl.layers(model)
    options = dict(detach=detach, with_kwargs=with_kwargs, root=model if rooted else None)
    hooks = [hl.Hooks(layers, lambda m, *given: given, kind=kind, **options) for kind in ("forward", "forward_pre", "backward", "backward_pre")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hl.HookWarning)
        hooked = run(model, inputs, start)
        for h in hooks: h.remove()
    assert difference(plain, hooked) == []
    assert ours(model) == [] and list(model.state_dict()) == keys
    assert difference(plain, run(model, inputs, start)) == []


# --- coming, going, failing
class Trouble(Exception):
    "What our layers and functions raise."


class Layered(nn.Module):
    "In-place layers, a layer that runs twice, one that runs only sometimes, a tuple between layers, a place to fail at."
    def __init__(self):
        super().__init__()
        self.first, self.act = nn.Linear(3, 4), nn.ReLU(inplace=True)
        self.body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.3, inplace=True), nn.Flatten(), nn.ReLU(inplace=True))
        self.both, self.rare, self.last = Both(), nn.Linear(4, 4), nn.Linear(4, 2)
        self.fail = None

    def forward(self, x):
        x = self.act(self.first(x))
        x = x + self.body(self.body(x))
        if self.fail: raise self.fail
        a, b = self.both(x)
        if self.training: b = self.rare(b)
        return {"out": self.last(a.mul_(2) + b), "b": b}


class Both(nn.Module):
    def forward(self, x): return x*3, x


errors = st.sampled_from([Trouble, KeyboardInterrupt])
NEEDS = {"forward": ["forward"], "forward_pre": ["forward_pre"], "backward": ["forward_pre", "forward"], "backward_pre": ["forward"]}
halves = st.sampled_from([(kind, half) for kind in NEEDS for half in NEEDS[kind]])
kinds = st.sampled_from(list(NEEDS))


def refuse(error):
    def refusing(*_, **__): raise error
    return refusing


class HooksComeAndGo(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        warnings.simplefilter("ignore", hl.HookWarning)
        torch.manual_seed(0)
        self.model, self.inputs = Layered(), {"x": torch.randn(5, 3, requires_grad=True)}
        self.start, self.keys = buffers(self.model), list(self.model.state_dict())
        self.plain = run(self.model, self.inputs, self.start)
        self.foreign, self.open = [], []
        self.model.act.register_forward_hook(lambda m, i, o: self.foreign.append(1))

    def make(self, kind, rooted, detach=True, f=lambda m, *given: given):
        return hl.Hooks(hl.layers(self.model), f, kind=kind, detach=detach, root=self.model if rooted else None)

    def run(self): return run(self.model, self.inputs, self.start)

    @invariant()
    def only_what_is_open_is_attached(self):
        live = sum(not h.removed for hooks in self.open for h in hooks)
        roots = sum(hooks.group.root is not None and not hooks.removed for hooks in self.open)
        assert len(ours(self.model)) == live + roots
        assert len(self.model.act._forward_hooks) >= 1 and list(self.model.state_dict()) == self.keys

    @rule(kind=kinds, rooted=st.booleans(), detach=st.booleans())
    def attach(self, kind, rooted, detach): self.open.append(self.make(kind, rooted, detach))

    @rule(kind_and_half=halves, error=errors, which=st.sampled_from(["first", "body", "body.2", "last", ""]))
    def a_layer_refuses(self, kind_and_half, error, which):
        "Attaching fails at this layer (or at the root, the last), maybe with half of a hook on."
        kind, half = kind_and_half
        layer = self.model.get_submodule(which)
        setattr(layer, f"register_{half}_hook", refuse(error))
        with pytest.raises(error): self.make(kind, rooted=True)
        delattr(layer, f"register_{half}_hook")

    @rule()
    def run_it(self): assert difference(self.plain, self.run()) == []

    @rule(error=errors)
    def the_model_fails(self, error):
        self.model.fail = error
        with pytest.raises(error): self.run()
        self.model.fail = None

    @rule(kind=kinds, rooted=st.booleans(), error=errors, at=st.integers(0, 9))
    def a_hook_fails(self, kind, rooted, error, at):
        calls = iter(range(100))
        def f(m, *given):
            if next(calls) == at: raise error
        with pytest.raises(error), self.make(kind, rooted, f=f): self.run()
        assert next(calls) > at

    @rule(kind=kinds, rooted=st.booleans(), error=errors)
    def a_block_fails(self, kind, rooted, error):
        with pytest.raises(error), self.make(kind, rooted):
            self.run()
            raise error

    @rule()
    def look_without_gradients(self):
        with torch.no_grad(): self.model(self.inputs["x"])

    @rule()
    def two_forwards_one_backward(self):
        self.model.zero_grad()
        loss([self.model(self.inputs["x"]), self.model(self.inputs["x"])]).backward()

    @rule()
    def copy_and_pickle(self):
        for other in (copy.deepcopy(self.model), pickle.loads(pickle.dumps(self.model.body))): assert ours(other) == []

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def remove(self, data):
        hooks = data.draw(st.sampled_from(self.open))
        hooks.remove()
        hooks.remove()

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def remove_one(self, data):
        h = data.draw(st.sampled_from(list(data.draw(st.sampled_from(self.open)))))
        h.remove()
        assert h.removed

    @precondition(lambda self: self.open)
    @rule(data=st.data(), error=errors | st.none())
    def enter_and_leave(self, data, error):
        hooks = data.draw(st.sampled_from(self.open))
        try:
            with hooks:
                if error: raise error
        except (Trouble, KeyboardInterrupt): pass
        assert hooks.removed

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def clear(self, data): data.draw(st.sampled_from(self.open)).clear()

    @rule()
    def remove_all(self):
        hl.remove_hooks(self.model)
        assert all(hooks.removed for hooks in self.open)

    def teardown(self):
        if not hasattr(self, "open"): return
        for hooks in self.open: hooks.remove()
        assert ours(self.model) == []
        before = len(self.foreign)
        assert difference(self.plain, self.run()) == []
        assert len(self.foreign) == before + 1  # other people's hooks stay


HooksComeAndGo.TestCase.settings = settings(deadline=None, max_examples=40, stateful_step_count=12, suppress_health_check=[HealthCheck.too_slow])
test_hooks_come_and_go = HooksComeAndGo.TestCase
