"""What layers cost: time in order and not below what it must be, memory to the byte, and the model as it was."""
import copy
import dataclasses
import gc
import time
import weakref
from contextlib import nullcontext
from itertools import groupby
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import hooklab as hl
from hooklab.profiling.cost_meters import Memory, Step, StepClock, Turns, Watched
from hooklab.profiling.cost_table import Costs, LayerCost, layer_costs
from hooklab.profiling.costs import cost

pytestmark = pytest.mark.filterwarnings("error::hooklab.hooks.copies.HookWarning")
once = {"warmup": 0, "repeat": 1}
F32 = 4  # bytes


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        time.sleep(ctx.seconds)
        return g, None


class Sleeper(nn.Module):
    def __init__(self, forward=0., backward=0.):
        super().__init__()
        self.seconds, self.lin = (forward, backward), nn.Linear(4, 4)

    def forward(self, x):
        time.sleep(self.seconds[0])
        return Slow.apply(self.lin(x), self.seconds[1])


class Calling(nn.Module):
    "Runs a function of its layers."
    def __init__(self, f, **children):
        super().__init__()
        self.f = f
        for name, m in children.items(): self.add_module(name, m)

    def forward(self, *args, **kwargs): return self.f(self, *args, **kwargs)


@pytest.fixture(autouse=True)
def same_numbers(): torch.manual_seed(0)


@pytest.fixture
def x(): return torch.randn(8, 4)


# time

def test_who_sleeps_is_found(x):
    net = nn.Sequential(Sleeper(), nn.Sequential(Sleeper(forward=.02), nn.ReLU()), Sleeper(backward=.03))
    c = cost(net, x, warmup=1, repeat=3)
    others = [r for r in c.rows if "." not in r.name and r.name != "(model)"]
    assert c["1.0"].forward_self >= 20 and max(others, key=lambda r: r.forward).name == "1"
    assert c["2"].backward_self >= 30 and max(others, key=lambda r: r.backward).name == "2"
    assert c["1"].forward >= 20 > c["1"].forward_self and c["(model)"].forward >= 20 > c["(model)"].forward_self
    assert c["(model)"].backward >= 30 > c["(model)"].backward_self


def test_times_add_up(x):
    net = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 4)))
    c = cost(net, x)
    for way in "forward", "backward":
        of = {r.name: getattr(r, way) for r in c.rows}
        alone = {r.name: getattr(r, f"{way}_self") or 0 for r in c.rows}
        assert of["(model)"] == pytest.approx(sum(alone.values()))
        assert of["1"] == pytest.approx(alone["1"] + alone["1.0"] + alone["1.1"])


def test_calls_of_a_layer_add_up(x):
    shared = Sleeper(forward=.01, backward=.01)
    net = Calling(lambda m, x: m.b(m.a(m.a(x))), a=shared, b=nn.Sequential(shared, nn.Tanh()))
    c = cost(net, x, **once)
    assert c["a"].calls == 3 and c["a"].forward >= 30 and c["a"].backward >= 30
    assert 10 <= c["b"].forward < c["a"].forward and 10 <= c["b"].backward < c["a"].backward  # one of the three calls
    assert [r.name for r in c.rows] == ["(model)", "a", "a.lin", "b", "b.1"]


def test_a_layer_in_itself(x):
    def f(m, x, deep=True): return m.lin(m(m.lin(x), deep=False)) if deep else m.lin(x)
    c = cost(Calling(lambda m, x: m.inner(x), inner=Calling(f, lin=Sleeper(forward=.01))), x, **once)
    assert c["inner"].calls == 2 and c["inner.lin"].calls == 3
    assert 30 <= c["inner"].forward <= c["(model)"].forward


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_what_checkpointing_runs_again_is_work_of_the_backward_pass(x, use_reentrant):
    block = nn.Sequential(Sleeper(forward=.01, backward=.01), nn.Tanh())
    net = Calling(lambda m, x: m.head(checkpoint(m.block, m.first(x), use_reentrant=use_reentrant)), first=nn.Linear(4, 4), block=block, head=nn.Linear(4, 4))
    c = cost(net, x, **once)
    assert c["block.0"].calls == 1 and 10 <= c["block.0"].forward and 20 <= c["block.0"].backward <= c["block"].backward
    assert c["(model)"].backward >= c["first"].backward + c["block"].backward + c["head"].backward
    assert not any(p.grad is not None for p in net.parameters())


def test_median_and_number_of_runs(x):
    ran = []
    net = Calling(lambda m, x: (ran.append(1), time.sleep(.05 if len(ran) == 4 else 0), m.lin(x))[-1], lin=nn.Linear(4, 4))
    c = cost(net, x, warmup=2, repeat=3)
    assert len(ran) == 2 + 3 + 1  # one more for memory
    assert c["(model)"].forward < 50  # the one slow step does not count
    ran.clear()
    net.f = lambda m, x: (ran.append(1), time.sleep(.05 if len(ran) < 3 else 0), m.lin(x))[-1]
    assert cost(net, x, warmup=2, repeat=1)["(model)"].forward < 50  # nor do those before


def test_turns(x):
    "While a hook works, no layer has its turn."
    net, seen = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), []
    turns = Turns({"(model)": net} | hl.layers(net)).put_on()

    class Meter:
        def __call__(self, before, after): seen.append((after[0], after[1][-1:]))
        def measuring(self, known): return nullcontext()

    Step(net, turns, ((x,), {}), lambda out: out.sum(), True).run(Meter())
    turns.close(report=False)
    none, model, first, second = ("", ()), ("forward", ("(model)",)), ("forward", ("0",)), ("forward", ("1",))
    backward = [("backward", ()), ("backward", ("1",)), ("backward", ("0",))]
    assert [turn for turn, _ in groupby(seen)] == [none, model, none, first, none, model, none, second, none, model, none,
                                                   ("loss", ()), *backward, none]


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_nodes_that_outlive_the_graph_are_left_alone(x, use_reentrant):
    block = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    held = [p.view_as(p).grad_fn.next_functions[0][0] for p in block.parameters()]  # where gradients end up, as data parallel holds them
    net = Calling(lambda m, x: checkpoint(m.block, m.first(x), use_reentrant=use_reentrant), first=nn.Linear(4, 4), block=block)
    cost(net, x, **once)
    gc.collect()
    assert held and not [o for o in gc.get_objects() if type(o) is Turns]


def test_a_queue_is_not_waited_for_until_the_step_is_over(x, monkeypatch):
    "What a GPU would do, played by events that know their time when all are done."
    done, waits = [], []

    class Event:
        def __init__(self, enable_timing): assert enable_timing
        def record(self, stream): self.at = time.perf_counter()
        def elapsed_time(self, end): return done and 1000*(end.at - self.at)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda gpu: None)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda gpu: (waits.append(gpu), done.extend(waits[1:])))
    clock, net = StepClock({"gpu"}, "gpu"), nn.Sequential(Sleeper(.01), nn.Tanh())
    turns = Turns({"(model)": net} | hl.layers(net)).put_on()
    Step(net, turns, ((x,), {}), lambda out: out.sum(), True).run(clock)
    turns.close(report=False)
    assert waits == ["gpu", "gpu"] and clock.spent["forward", ("(model)", "0")] >= 10
    assert clock.spent["backward", ("(model)", "1")] > 0


def test_where_there_are_no_events_every_turn_is_waited_for(x, monkeypatch):
    waits = []
    monkeypatch.setattr(torch.accelerator, "synchronize", waits.append)
    clock = StepClock({"other"}, None)
    for i in range(3): clock(None, i)
    assert len(waits) == 3


# memory

def saved(net, *args, **kwargs): return {r.name: r.saved_self for r in cost(net, *args, **once, **kwargs).rows}


def test_linear_and_relu():
    net = nn.Sequential(nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, 10))
    x = torch.randn(8, 100)
    assert saved(net, x) == {"(model)": 0, "0": 0, "1": 8*50*F32, "2": 0}  # `2` needs what `1` has saved
    assert saved(net, x.requires_grad_()) == {"(model)": 0, "0": 0, "1": 8*50*F32, "2": 0}
    net[1] = nn.ReLU(inplace=True)
    assert saved(net, x) == {"(model)": 0, "0": 0, "1": 8*50*F32, "2": 0}
    net[1] = nn.GELU()  # needs what it gets, and `2` what it returns
    assert saved(net, x) == {"(model)": 0, "0": 0, "1": 8*50*F32, "2": 8*50*F32}
    net[0].requires_grad_(False)
    assert saved(net, x.detach()) == {"(model)": 0, "0": 0, "1": 0, "2": 8*50*F32}


def test_convolution():
    net = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.Conv2d(6, 2, 3))
    size = 2*6*16*16*F32
    assert saved(net, torch.randn(2, 3, 16, 16)) == {"(model)": 0, "0": 0, "1": size + 2*6*F32, "2": size, "3": 0}


def test_checkpointed_layers_keep_their_input_alone(x):
    block = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Tanh(), nn.Tanh(), nn.Linear(64, 4), nn.Tanh())
    net = Calling(lambda m, x, again: m.head(checkpoint(m.block, m.first(x), use_reentrant=False) if again else m.block(m.first(x))),
                  first=nn.Linear(4, 4), block=block, head=nn.Linear(4, 4))
    plain, again = cost(net, x, again=False, **once), cost(net, x, again=True, **once)
    assert plain["(model)"].saved == 8*F32*(4 + 3*64 + 4) and plain["block"].saved == plain["(model)"].saved
    assert again["(model)"].saved == 8*F32*(4 + 4) and again["block"].saved == 0
    assert again["(model)"].forward_peak < plain["(model)"].forward_peak


def test_views_keep_all_of_their_storage(x):
    net = Calling(lambda m, x: m.lin(x)[:, :1].exp().square(), lin=nn.Linear(4, 4))
    assert saved(net, x) == {"(model)": 8*F32, "lin": 0}  # `square` needs the result of `exp`, as `exp` does
    net.f = lambda m, x: m.lin(x)[:, :1].sin()
    assert saved(net, x) == {"(model)": 8*4*F32, "lin": 0}


def test_nested_tensors():
    x = torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(3, 4)], layout=torch.jagged)
    assert saved(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), x, loss=lambda out: out.values().sum()) == {"(model)": 0, "0": 0, "1": 5*4*F32}


def test_autocast_keeps_half(x):
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    with torch.autocast("cpu", torch.bfloat16):
        for _ in range(2):  # autocast keeps what it has cast; the second time it must not be there already
            assert saved(net, x) == {"(model)": 0, "0": 2*8*4, "1": 2*8*4}


def test_what_is_saved_and_dropped_does_not_hide_what_comes_after(x):
    def f(m, x):
        for _ in range(20): m.lin(x).exp()  # the memory is free again, for the next
        return m.lin(x).exp()
    net = Calling(f, lin=nn.Linear(4, 4))
    assert saved(net, x)["(model)"] == 21*8*4*F32
    assert peaks(net, x)["(model)"][0] == 2*8*4*F32  # what `lin` and `exp` return


def peaks(net, *args, **kwargs): return {r.name: (r.forward_peak, r.backward_peak) for r in cost(net, *args, **once, **kwargs).rows}


def test_peak_without_gradients():
    net = nn.Sequential(nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, 10))
    x = torch.randn(8, 100)
    with torch.no_grad(): found = peaks(net, x)
    a, b = 8*50*F32, 8*10*F32
    assert found == {"(model)": (a + a, None), "0": (a, None), "1": (a + a, None), "2": (a + b, None)}


def test_peak_of_a_step():
    net = nn.Sequential(nn.Linear(100, 50, bias=False), nn.ReLU(), nn.Linear(50, 10, bias=False))
    found = peaks(net, torch.randn(8, 100), loss=lambda out: out.sum())
    a, b, w0, w2, one = 8*50*F32, 8*10*F32, 100*50*F32, 50*10*F32, F32
    assert {name: to for name, (to, fro) in found.items()} == {"(model)": a + a, "0": a, "1": a + a, "2": a + b}
    # The loss and its gradient are one number each, of which sum's gradient is a view; what `1` returned is needed until `2` is done.
    held = b + one + one
    assert found["2"][1] == held + a + w2 + a
    assert found["1"][1] == held + a + w2 + a + a  # it gets a gradient and makes one, while its result is there
    assert found["0"][1] == held + w2 + a + w0
    assert found["(model)"][1] == max(found[name][1] for name in "012")


@pytest.mark.parametrize("how", [None, False, True])
def test_measuring_keeps_nothing_alive(x, how):
    "The peak is that of a step that is not looked at."
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4), nn.Tanh()) for _ in range(3))

    def f(m, x):
        for block in m.blocks: x = block(x) if how is None else checkpoint(block, x, use_reentrant=how)
        return x

    net, x = Calling(f, blocks=blocks), x.requires_grad_()
    with Watched({t.untyped_storage()._cdata for t in [*net.parameters(), x]}) as plain:
        out = net(x)
        loss = out.mean()
        loss.backward()
    measured = peaks(net, x)["(model)"]
    assert max(measured) == plain.most


def test_autocast_casts_in_each_step(x):
    net = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 4))
    with torch.autocast("cpu", torch.bfloat16): measured = peaks(net, x)["(model)"]
    known = {t.untyped_storage()._cdata for t in [*net.parameters(), x]}
    with Watched(known) as plain, torch.autocast("cpu", torch.bfloat16): net(x)
    assert measured[0] == plain.most


def test_memory_is_the_same_each_time_and_on_meta():
    def net(): return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(8*36, 4))
    def memory(c): return [(r.name, r.saved, r.saved_self, r.forward_peak, r.backward_peak) for r in c.rows]
    with torch.device("meta"): c = cost(net(), torch.randn(2, 3, 8, 8))
    model = net()
    first, second = (memory(cost(model, torch.randn(2, 3, 8, 8), **once)) for _ in range(2))
    assert first == second
    assert [row[2] for row in memory(c)] == [row[2] for row in first]
    assert c.rows[0].forward is None and c.rows[0].backward is None and "meta" in c.notes[0] and "-" in repr(c)


def test_peak_as_an_allocator_counts_it(x, monkeypatch):
    "What CUDA would say, played by numbers: the memory in use, and the most since the count was reset."
    in_use = SimpleNamespace(now=100, most=500)

    def use(m, x):
        in_use.now, in_use.most = in_use.now + m.keeps, max(in_use.most, in_use.now + m.needs)
        return m.lin(x)

    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda gpu: in_use.now)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda gpu: in_use.most)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda gpu: setattr(in_use, "most", in_use.now))
    net = nn.Sequential(*[Calling(use, lin=nn.Linear(4, 4)) for _ in range(3)])
    for m, m.keeps, m.needs in zip(net, (10, 20, 0), (10, 70, 5)): pass
    turns = Turns({"(model)": net} | hl.layers(net)).put_on()
    memory = Memory(turns, "gpu")
    Step(net, turns, ((x,), {}), lambda out: out.sum(), True).run(memory)
    turns.close(report=False)
    row = {r.name: r for r in layer_costs({"(model)": net} | hl.layers(net), turns.calls, [], memory)}
    assert [row[name].forward_peak for name in ("(model)", "0", "1", "2")] == [80, 10, 80, 35]
    assert [row[name].backward_peak for name in ("(model)", "0", "1", "2")] == [30]*4


# untouched

class Awkward(nn.Module):
    "Draws random numbers, has statistics, a layer that runs twice in place, one that does not run, nested outputs; raises where it is told to."
    def __init__(self):
        super().__init__()
        self.lin, self.norm, self.drop, self.act = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.ReLU(inplace=True)
        self.unused, self.boom = nn.Linear(4, 4), Calling(self.raising)
        self.register_buffer("count", torch.zeros(()))

    @staticmethod
    def raising(m, x, where):
        if where == "layer": raise ValueError("boom")
        return Boom.apply(x, where)

    def forward(self, x, *, where=None):
        self.count += 1
        x = self.boom(self.act(self.norm(self.act(self.lin(x)))), where)
        if where == "model": raise ValueError("boom")
        return {"out": [self.drop(x), None], "n": 3, "which": x.argmax(1)}


class Boom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, where):
        ctx.where = where
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        if ctx.where == "backward": raise ValueError("boom")
        return g, None


def raising_loss(out): raise ValueError("boom")


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("where", [None, "layer", "model", "backward", "loss"])
def test_untouched(x, where, training):
    net = Awkward().train(training)
    net.lin.weight.grad = torch.ones(4, 4)
    stepped = []
    net.lin.weight.register_post_accumulate_grad_hook(lambda p: stepped.append(p))
    x.requires_grad_()
    x.grad = torch.ones_like(x)
    state, given, grads = copy.deepcopy(net.state_dict()), x.detach().clone(), [p.grad for p in net.parameters()]
    versions = [t._version for t in [*net.parameters(), *net.buffers(), x]]
    hooks, rng = [(dict(m._forward_hooks), dict(m._forward_pre_hooks)) for m in net.modules()], torch.get_rng_state()
    kwargs = {"loss": raising_loss} if where == "loss" else {"where": where}
    with pytest.raises(ValueError, match="boom") if where else nullcontext() as e: cost(net, x, repeat=2, **kwargs)
    if where:
        told = {"layer": "`boom` (Calling) got ", "model": "The forward of Awkward itself got ",
                "backward": "raised in boom, in the backward pass", "loss": "raised in the loss"}
        assert told[where] in "".join(e.value.__notes__)
    assert all(torch.equal(a, b) for a, b in zip(state.values(), net.state_dict().values()))
    assert all(a is p.grad for a, p in zip(grads, net.parameters())) and torch.equal(grads[0], torch.ones(4, 4))
    assert torch.equal(x, given) and torch.equal(x.grad, torch.ones_like(x))
    assert versions == [t._version for t in [*net.parameters(), *net.buffers(), x]]
    assert hooks == [(dict(m._forward_hooks), dict(m._forward_pre_hooks)) for m in net.modules()] and not hl.hooks_on(net)[1:]
    assert torch.equal(rng, torch.get_rng_state()) and net.training is training and not stepped
    net(x.detach())["out"][0].sum().backward()
    assert len(stepped) == 1  # it waits again


def test_ctrl_c(x):
    def f(m, x): raise KeyboardInterrupt
    net = nn.Sequential(nn.BatchNorm1d(4), Calling(f))
    net[0].weight.grad = grad = torch.ones(4)
    with pytest.raises(KeyboardInterrupt): cost(net, x)
    assert not hl.hooks_on(net) and net[0].weight.grad is grad and not net[0].num_batches_tracked
    net[1].f = lambda m, x: Interrupted.apply(x)
    with pytest.raises(KeyboardInterrupt): cost(net, x)
    assert not hl.hooks_on(net) and net[0].weight.grad is grad and not net[0].num_batches_tracked


class Interrupted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()

    @staticmethod
    def backward(ctx, g): raise KeyboardInterrupt


def test_an_error_in_the_memory_run_too(x):
    ran = []
    def f(m, x):
        ran.append(1)
        if len(ran) == 2: raise ValueError("boom")
        return m.lin(x)
    net = Calling(f, lin=nn.Linear(4, 4))
    with pytest.raises(ValueError, match="boom"): cost(net, x, **once)
    assert not hl.hooks_on(net) and torch.is_grad_enabled()
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None


def test_what_the_model_says_of_wrong_input(x):
    net = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(3, 4)))
    with pytest.raises(RuntimeError, match="cannot be multiplied") as e: cost(net, x)
    assert "`1.1` (Linear) takes 3 features and got 4" in e.value.__notes__[0] and not hl.hooks_on(net)
    with pytest.raises(TypeError, match="positional argument") as e: cost(net)
    assert e.value.__notes__ == ["\nThe forward of Sequential itself got no tensor."]


def test_an_error_that_the_model_catches_is_not_blamed(x):
    def f(m, x):
        try: m.bad(x)
        except RuntimeError:
            if m.after is None: return x
        return m.after(x)

    def told(after, **options):
        with pytest.raises(RuntimeError, match="another") as e: cost(Calling(f, bad=nn.Linear(3, 3), after=after), x, **options)
        return e.value.__notes__

    def another(*_): raise RuntimeError("another")
    assert told(Calling(another)) == ["\n`after` (Calling) got 8×4 from the input `args`."]
    assert told(nn.Linear(4, 4), loss=another) == told(None, loss=another) == ["raised in the loss"]
    assert cost(Calling(f, bad=nn.Linear(3, 3), after=nn.Linear(4, 4)), x, **once)["after"].calls == 1


def test_an_error_before_is_not_blamed_either(x):
    "A layer that returns None looks like one that raised, while an error is being handled."
    try: raise KeyError
    except KeyError:
        with pytest.raises(ValueError, match="boom") as e: cost(Calling(lambda m, x: None), x, loss=raising_loss)
    assert e.value.__notes__ == ["raised in the loss"]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_what_does_not_fit_is_said(x):
    with pytest.raises(TypeError, match="Module"): cost("net", x)
    with pytest.raises(ValueError, match="lazy"): cost(nn.LazyLinear(3), x)
    with pytest.raises(ValueError, match="repeat=0"): cost(nn.Linear(4, 4), x, repeat=0)
    with pytest.raises(ValueError, match="warmup=-1"): cost(nn.Linear(4, 4), x, warmup=-1)
    with pytest.raises(TypeError, match="one number, got 8×4"): cost(nn.Linear(4, 4), x, loss=lambda out: out)
    with pytest.raises(TypeError, match="one number, got float"): cost(nn.Linear(4, 4), x, loss=lambda out: out.sum().item())
    with pytest.raises(TypeError, match="no forward"): cost(nn.ModuleList([nn.Linear(4, 4)]), x)
    with pytest.raises(TypeError, match="scripted"): cost(torch.jit.script(nn.Linear(4, 4)), x)
    with pytest.raises(TypeError, match="exported"): cost(torch.export.export(nn.Linear(4, 4), (x,)).module(), x)
    with pytest.raises(LookupError, match="0.lin"): cost(nn.Sequential(Sleeper()), x, **once)["lin"]


def test_the_model_is_let_go(x):
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    gone, c = weakref.ref(net), cost(net, x)
    del net
    gc.collect()
    assert gone() is None and len(c.rows) == 3


def test_hooks_of_others_see_the_steps(x):
    net, seen = nn.Sequential(nn.Linear(4, 4)), []
    with hl.Hooks(net, lambda m, i, o: seen.append(1)):
        before = repr(hl.hooks_on(net))
        cost(net, x, **once)
        assert len(seen) == 2 and repr(hl.hooks_on(net)) == before
    assert not hl.hooks_on(net)


# models of all kinds

def ran(row): return row.calls and row.forward > 0 and row.forward_peak is not None


def test_awkward(x):
    c = cost(Awkward(), x)
    assert c["act"].calls == 2 and c["drop"].calls == 1
    unused = c["unused"]
    assert unused.calls == 0 and set(dataclasses.asdict(unused).values()) == {"unused", "Linear", 0, None}
    assert "not run" in repr(c)
    assert all(ran(r) and r.backward > 0 for r in c.rows if r.name != "unused")


@pytest.mark.parametrize("needs", [True, False])
def test_frozen(x, needs):
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)).requires_grad_(False)
    net[2].weight.requires_grad_()
    c = cost(net, x.requires_grad_(needs))
    assert (c["0"].backward is not None) is (c["1"].backward is not None) is needs
    assert c["2"].backward > 0 and not c.notes


def test_no_gradients(x):
    net = nn.Linear(4, 4).requires_grad_(False)
    c = cost(net, x)
    assert c.rows[0].backward is None and ran(c.rows[0]) and "needs gradients" in c.notes[0] and c.notes[0] in repr(c)
    net.requires_grad_()
    with torch.no_grad(): assert cost(net, x).notes == ["forward only: gradients are switched off"]
    with torch.inference_mode(): assert cost(net, x).notes == ["forward only: gradients are switched off"]
    c = cost(net, x, backward=False)
    assert c.rows[0].backward is None and not c.notes
    assert cost(net, x, loss=lambda out: out.detach().sum()).notes
    assert cost(Calling(lambda m, x: m.lin(x).argmax(), lin=net), x).notes


def test_losses(x):
    net = nn.Linear(4, 4)
    asked = []
    assert cost(net, x, loss=lambda out: asked.append(out.shape) or out.square().mean()).rows[0].backward > 0 and asked[0] == (8, 4)
    own = Calling(lambda m, x: SimpleNamespace(loss=m.a(x).sum(), logits=m.b(x)), a=nn.Linear(4, 4), b=nn.Linear(4, 4))
    c = cost(own, x)
    assert c["a"].backward > 0 and c["b"].backward is None
    temperature = torch.ones((), requires_grad=True)
    assert cost(net, x, loss=lambda out: (out*temperature).sum()) and temperature.grad is None  # also what only the loss knows


def test_inputs_by_name_and_inputs_with_a_history(x):
    net = Calling(lambda m, *, batch: m.lin(batch["x"].relu_()), lin=nn.Linear(4, 4))
    leaf = x.clone().requires_grad_()
    given = leaf*2
    c = cost(net, batch={"x": given})
    assert ran(c["lin"]) and leaf.grad is None and torch.equal(given, leaf*2)
    given.sum().backward()  # its graph is there
    c = cost(net, batch={"x": x})
    assert (x < 0).any()  # the model works in place on a copy


def test_resnet():
    torchvision = pytest.importorskip("torchvision")
    net = torchvision.models.resnet18(weights=None)
    c = cost(net, torch.randn(2, 3, 64, 64), warmup=1, repeat=1)
    assert all(ran(r) and r.backward > 0 for r in c.rows) and len(c.rows) == 68
    assert c["layer1.0.relu"].calls == 2 and c["layer1"].forward > c["layer1.0"].forward > c["layer1.0.conv1"].forward
    assert not net.bn1.num_batches_tracked


def test_a_model_that_goes_backward_itself(x):
    def f(m, x):
        x = x.requires_grad_()
        return torch.autograd.grad(m.act(m.lin(x)).sum(), x, create_graph=True)[0]
    net = Calling(f, lin=nn.Linear(4, 4), act=nn.Tanh())
    c = cost(net, x)
    assert all(ran(r) and r.calls == 1 for r in c.rows) and c["(model)"].backward_self > 0 and c["act"].saved_self == 8*4*F32
    assert all(p.grad is None for p in net.parameters())


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out, self.mlp = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16), nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm(x))


def test_attention():
    x = torch.randn(2, 10, 16)
    c = cost(nn.Sequential(Attention(), Attention()), x)
    assert all(ran(r) and r.backward > 0 for r in c.rows) and c["0.norm"].calls == 2
    assert c["1"].backward_self > 0  # attention itself is no layer: it is work of the block
    c = cost(nn.Sequential(nn.TransformerEncoderLayer(16, 4, batch_first=True), nn.GRU(16, 8, batch_first=True)), x)
    assert c["0.self_attn.out_proj"].calls == 0 and c["1"].backward > 0  # it only lends its weights


def test_compiled(x):
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compiled = torch.compile(net, backend="eager")
    compiled(x)
    c = cost(compiled, x, **once)
    assert [r.name for r in c.rows] == ["(model)", "0", "1"] and all(ran(r) for r in c.rows) and "uncompiled" in c.notes[0]
    net[0].compile(backend="eager")
    assert all(ran(r) for r in cost(net, x, **once).rows)
    assert cost(nn.Sequential(torch.compile(nn.Linear(4, 4), backend="eager")), x, **once)["0"].calls == 1


def test_wrapped_and_sharded(x, tmp_path):
    if not torch.distributed.is_available(): pytest.skip("no torch.distributed")
    from torch.distributed.fsdp import fully_shard
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        nets = [nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)) for _ in range(2)]
        for m in nets[1][0], nets[1][2], nets[1]: fully_shard(m, mesh=torch.distributed.init_device_mesh("cpu", (1,)))
        for net in nn.parallel.DistributedDataParallel(nets[0]), nets[1]:
            net(x).sum().backward()
            grads = [p.grad for p in net.parameters()]
            c = cost(net, x, **once)
            assert [r.name for r in c.rows] == ["(model)", "0", "1", "2"] and c.rows[0].kind.endswith("Sequential") and all(ran(r) and r.backward > 0 for r in c.rows)
            assert all(a is p.grad for a, p in zip(grads, net.parameters()))
            net(x).sum().backward()  # it can go on
    finally: torch.distributed.destroy_process_group()


# to read

rows = [LayerCost("(model)", "Net", 1, 30., 60., 1., None, 3_000_000, 0, 4_000_000, 9_000_000), LayerCost("body", "ModuleList", 0),
        LayerCost("body.0", "AVeryLongNameOfALayer", 2, 20., 40.1234, 20., 40.1234, 3_000_000, 3_000_000, 4_000_000, 9_000_000),
        LayerCost("head", "Linear", 1, 9., 20., 9., 20., 0, 0, 1_000, 999)]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_table(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    text = repr(Costs(rows, ["a note"]))
    lines = text.splitlines()
    assert len(lines) == 6 and lines[-1] == "(a note)" and max(map(len, lines)) <= max(width, 75)
    assert "40.1 ms" in lines[3] and "67%" in lines[3] and "3 MB" in lines[3] and "9 MB" in lines[3] and "not run" in lines[2]


def test_rows_for_pandas():
    frame = pytest.importorskip("pandas").DataFrame(Costs(rows).rows)
    assert list(frame.name) == [r.name for r in rows] and frame.forward[1] != frame.forward[1]


@pytest.mark.parametrize("what,unit,labels", [("time", "ms", ["(model)", "body.0", "head"]), ("memory", "MB", ["body.0"]), ("peak", "MB", ["body.0", "head"])])
def test_pictures(what, unit, labels):
    plt = pytest.importorskip("matplotlib.pyplot")
    ax = plt.subplots()[1]
    assert Costs(rows).plot(what, ax) is ax and ax.get_xlabel().endswith(unit)
    assert [t.get_text() for t in ax.get_yticklabels()] == labels
    plt.close("all")


def test_pictures_of_much_and_of_nothing():
    plt = pytest.importorskip("matplotlib.pyplot")
    many = [LayerCost(f"layer{i}", "Linear", 1, i, i, i, i, i, i, i, i) for i in range(60)]
    ax = Costs(many).plot(n=20)
    assert [t.get_text() for t in ax.get_yticklabels()][:20] == [f"layer{i}" for i in range(40, 60)]
    assert Costs([LayerCost("a", "Linear", 0)]).plot().texts
    with pytest.raises(ValueError, match="time, memory, peak"): Costs(rows).plot("power")
    plt.close("all")


# on a GPU

@pytest.mark.gpu
def test_gpu_time_is_of_the_work_and_not_of_the_launch():
    big, small = nn.Linear(8192, 8192, bias=False), nn.Linear(8192, 8, bias=False)
    c = cost(nn.Sequential(big, small).cuda(), torch.randn(8192, 8192, device="cuda"), warmup=3)
    flops = 2*8192**3
    assert c["0"].forward > 1e3*flops/2e15  # no GPU is faster, and the launch would be
    assert c["0"].forward > c["1"].forward and c["0"].backward > c["1"].backward


@pytest.mark.gpu
def test_gpu_memory():
    net, x = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024)).cuda(), torch.randn(1024, 1024, device="cuda")
    c, size = cost(net, x), 1024*1024*F32
    assert [r.saved_self for r in c.rows] == [0, 0, size, 0]
    assert 2*size <= c["1"].forward_peak <= 3*size and c["2"].backward_peak >= 3*size
    assert all(p.grad is None for p in net.parameters())
    rng = torch.cuda.get_rng_state()
    cost(nn.Sequential(net, nn.Dropout()), x)
    assert torch.equal(rng, torch.cuda.get_rng_state())
