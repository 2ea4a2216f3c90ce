"""Compiled models: hooks from before and after, what they see, what they cost, and what they leave."""
import copy
import itertools
import warnings

import pytest
import torch
import torch._dynamo
from torch import nn
from torch._dynamo.utils import counters

import hooklab as hl
from support.portions import swept
from support.traces import difference, ours, run, same
from support.whole_models import same_calls

# inductor needs a C++ compiler and takes its time; the quick tests go through all ways once and through the other backend where it may differ
BACKENDS = ["eager", "aot_eager", "inductor"]
WHEN = ["before", "after", "when another one was compiled"]


def slow_unless(quick, *ways):
    "All ways: the quick ones, and a sample of the others, in which each value of the first parameter is."
    ways = list(itertools.product(*ways))
    others = [way for way in ways if not quick(*way)]
    return [*(way for way in ways if quick(*way)), *swept(3, others, kind=lambda way: way[0])]


@pytest.fixture(autouse=True)
def fresh():
    torch.set_num_threads(1)
    reset()
    yield
    torch._dynamo.reset()


def reset():
    torch._dynamo.reset()
    counters.clear()


def graphs() -> int: return counters["stats"]["unique_graphs"]
def breaks() -> int: return sum(counters["graph_break"].values())


class Block(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.a, self.act, self.b = nn.Linear(d, d), nn.ReLU(inplace=True), nn.Linear(d, d)
    def forward(self, x): return x + self.b(self.act(self.a(x)))


class Shared(nn.Module):
    "A layer that runs often, and returns more than a tensor."
    def __init__(self):
        super().__init__()
        self.block, self.turn, self.pack = Block(), nn.Linear(8, 8), Pack()
    def forward(self, input):
        for _ in range(12): input = self.turn(input).tanh()
        return self.pack(self.block(input))["out"]


class Pack(nn.Module):
    def forward(self, x): return {"out": x*2, "more": (x.sum(), None, [x])}


def net():
    torch.manual_seed(0)
    return nn.Sequential(Block(), nn.Hardtanh(inplace=True), Block(), nn.Linear(8, 2))


def inputs(): return {"input": torch.randn(4, 8, generator=torch.Generator().manual_seed(1), requires_grad=True)}
def last(m, *given): return given[-1]


def watch(model, kind="forward", rooted=True, **options):
    return hl.Hooks(hl.layers(model), last, kind=kind, root=model if rooted else None, **options)


def in_eager(model, kind):
    with watch(model, kind) as hooks:
        result = run(model, inputs())
        return result, {h.name: h.calls for h in hooks}


@pytest.mark.parametrize("backend,when,kind,rooted", slow_unless(
    lambda backend, when, kind, rooted: backend == "eager" and when != WHEN[-1]
    and rooted == (when == "before" or kind == "forward") or (backend, when, kind, rooted) == ("aot_eager", WHEN[-1], "forward", True),
    BACKENDS, WHEN, ["forward", "forward_pre"], [True, False]))
def test_forward_hooks_are_in_the_graph(backend, when, kind, rooted):
    "The same values as in eager code, without a graph break, without a graph more in later steps; and off again."
    _, expected = in_eager(net(), kind)
    model, other = net(), net()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    plain = run(compiled, inputs())
    if when == "before": reset()
    if when == "when another one was compiled":
        reset()
        run(torch.compile(other, backend=backend), inputs())
    counters.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", hl.HookWarning)
        with watch(model, kind, rooted) as hooks:
            results = [run(compiled, inputs()) for _ in range(12)]
            seen = {h.name: h.calls for h in hooks}
            assert all(h.n_calls == 1 for h in hooks)
    assert breaks() == 0 and graphs() == 1
    assert difference(plain, results[0]) == difference(plain, results[-1]) == []
    for name in seen: assert close_calls(seen[name], expected[name], exact=backend != "inductor"), name
    assert ours(compiled) == [] and difference(plain, run(compiled, inputs())) == []


def close_calls(a, b, exact) -> bool:
    if exact: return same_calls(a, b)
    a, b = hl.tensors(a), hl.tensors(b)
    return len(a) == len(b) and all(torch.allclose(x, y, rtol=1e-4, atol=1e-5) for x, y in zip(a, b))


@pytest.mark.parametrize("backend,when,kind", slow_unless(
    lambda *way: way in (("eager", "before", "backward_pre"), ("aot_eager", "after", "backward")),
    BACKENDS, WHEN, ["backward", "backward_pre"]))
def test_gradient_hooks_break_the_graph_and_say_so(backend, when, kind):
    _, expected = in_eager(net(), kind)
    model = net()
    compiled = torch.compile(model, backend=backend)
    plain = run(compiled, inputs())
    if when != "after": reset()
    if when == "when another one was compiled": run(torch.compile(net(), backend=backend), inputs())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with watch(model, kind) as hooks:
            for _ in range(3): hooked = run(compiled, inputs())
            seen = {h.name: h.calls for h in hooks}
    said = [w for w in said if issubclass(w.category, hl.HookWarning)]
    assert len(said) == 1 and "split the compiled graph" in str(said[0].message)
    for name in seen: assert close_calls(seen[name], expected[name], exact=backend != "inductor"), name
    if backend != "inductor": assert difference(plain, hooked) == []  # inductor fuses what a break keeps apart: other last bits
    for name, g in plain.gradients.items(): torch.testing.assert_close(g, hooked.gradients[name])
    assert ours(compiled) == []


def blocks(n): return nn.Sequential(*[Block() for _ in range(n)])


@pytest.mark.parametrize("kind,late", slow_unless(
    lambda kind, late: (kind, late) == ("backward", True), ["forward", "backward"], [False, True]))
@pytest.mark.parametrize("build,compile", [
    (Shared, lambda m: m.compile(backend="eager")), (lambda: blocks(12), lambda m: [block.compile(backend="eager") for block in m]),
    (lambda: blocks(3), lambda m: [m._modules.__setitem__(name, torch.compile(block, backend="eager")) for name, block in list(m._modules.items())]),
    (Shared, lambda m: setattr(m, "turn", torch.compile(m.turn, backend="eager"))),
], ids=["in place", "block by block", "wrapped blocks", "a layer that runs often"])
def test_parts_compiled(build, compile, kind, late):
    "Names, calls and values are those of the eager model, however it is compiled, and whenever it is hooked."
    torch.manual_seed(0)
    model = build()
    twin = copy.deepcopy(model)
    plain, expected = in_eager(twin, kind)
    compile(model)
    if late: run(model, inputs())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hl.HookWarning)
        with watch(model, kind) as hooks:
            for _ in range(4): hooked = run(model, inputs())
            seen = {h.name: h.calls for h in hooks}
    assert list(plain.outputs) == list(hooked.outputs) and all(same(plain.outputs[name], hooked.outputs[name]) for name in plain.outputs)
    assert seen.keys() == expected.keys()
    for name in seen: assert same_calls(seen[name], expected[name]), name
    assert ours(model) == []


def test_kept_calls_without_a_root():
    "With `keep` the list of calls grows to its length, and no further: then nothing is compiled any more."
    model = net()
    model.compile(backend="eager")
    with watch(model, rooted=False, keep=3) as hooks:
        for _ in range(5): run(model, inputs())
        compiled = graphs()
        for _ in range(10): run(model, inputs())
        assert graphs() == compiled and all(len(h.calls) == 3 for h in hooks)


def test_numbers_in_the_graph():
    "A function that reduces the output is a part of the graph as well."
    model = net()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with hl.Hooks(model, lambda m, i, o: {"mean": o.mean(), "largest": o.abs().amax()}, names="*") as hooks:
        for _ in range(3): compiled(inputs()["input"])
        assert graphs() == 1 and all(set(h.stored) == {"mean", "largest"} for h in hooks)


def test_dynamic_shapes():
    model = net()
    compiled = torch.compile(model, backend="eager", dynamic=True)
    with hl.hook_outputs(model, names="*") as hooks:
        for n in (3, 5, 7):
            compiled(torch.randn(n, 8))
            assert all(len(h.stored) == n for h in hooks)
    assert breaks() == 0


def test_modes_of_a_compiled_model():
    "Without gradients, in inference mode, in eval mode, in autocast."
    model = net()
    compiled = torch.compile(model, backend="eager")
    with hl.hook_outputs(model, names="*") as hooks:
        with torch.no_grad(): compiled(inputs()["input"])
        assert same(hooks[-1].stored, model(inputs()["input"]).detach())
        with torch.inference_mode(): compiled(inputs()["input"])
        assert not hooks[0].stored.requires_grad
        with torch.autocast("cpu", torch.bfloat16): compiled(inputs()["input"])
        assert hooks[-1].stored.dtype == torch.bfloat16


def test_raising_function():
    model = net()
    compiled = torch.compile(model, backend="eager")
    def f(m, i, o): raise ValueError("no")
    with pytest.raises(Exception, match="no"), hl.Hooks(model, f, names="*"): compiled(inputs()["input"])
    assert ours(model) == []
    compiled(inputs()["input"])


@torch._dynamo.config.patch(skip_nnmodule_hook_guards=False)  # put back afterwards, whatever happens to it in here
def test_silence_is_reported():
    """If torch is told not to check for hooks, code that was compiled for one model runs the other without its hooks.
    The warning says what to do."""
    model, other = net(), net()
    with pytest.warns(hl.HookWarning, match=r"0\.a.*never called.*torch\._dynamo\.reset"), hl.hook_outputs(model, names="*") as hooks:
        torch._dynamo.config.skip_nnmodule_hook_guards = True
        for one in (other, model): run(torch.compile(one, backend="eager"), inputs())
        assert all(h.n_calls == 0 for h in hooks)
    assert ours(model) == []
    with hl.hook_outputs(model, names="*") as hooks:  # and the next hooks are seen again
        run(torch.compile(model, backend="eager"), inputs())
        assert all(h.n_calls == 1 for h in hooks)
