"A trace: what led to what, who wrote where, the numbers of the moment, and nothing left when it is over."
import gc
import threading
import weakref
from contextlib import suppress

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils.checkpoint import checkpoint

import hooklab as hl
from hooklab.hooks.function_mode import each_call
from hooklab.hooks.trace import HIDDEN, ODD, PARTS_COMPILED, RUN_AS_ONE, TRANSFORMED, UNSEEN, traced
from support.nets import Returns

pytestmark = [pytest.mark.usefixtures("one_thread"),
              pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:FutureWarning")]
MUCH = 10**8


def trace_of(f, /, *given, keep=MUCH, **options):
    "The trace of a function, as a model, and what it returned."
    model = f if isinstance(f, nn.Module) else Returns(f)
    with traced(model, keep, **options) as trace: output = model(*given)
    return trace, output


def parents(trace, function): return [op.function for op in trace.of(function)[-1].parents]


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(4, 3)


@pytest.fixture
def leaf(x): return x.clone().requires_grad_()


@pytest.fixture(autouse=True)
def nothing_is_left_on():
    yield
    assert not _get_current_function_mode_stack()


# What led to what


def test_operations_of_layers_and_of_the_loss(x):
    net = nn.Sequential(nn.Linear(3, 5), nn.GELU(), nn.Linear(5, 2))
    target = torch.zeros(4, 2)
    with traced(net) as trace: loss = F.mse_loss(net(x), target)
    assert [op.name for op in trace.top] == ["0/linear#0", "1/gelu#0", "2/linear#0", "/mse_loss#0"]
    assert [op.parents for op in trace.top[1:]] == [[op] for op in trace.top[:-1]]
    assert [op.users for op in trace.top[:-1]] == [[op] for op in trace.top[1:]]
    assert [call.name for call in trace.calls] == ["0", "1", "2", ""] and trace.calls[0].around is trace.calls[-1]
    assert trace.leading_to(loss) == {*trace.ops} - {op for op in trace.ops if op.around} and not trace.blind
    assert [*trace.top[-1].before(stop="gelu".__eq__)] == [trace.top[2], trace.top[1]]  # and nothing behind `gelu`
    assert "net(x)" in trace.top[0].line and str(trace.top[0].y) == "4×5"


@pytest.mark.parametrize("write, name", [
    (lambda a, b: a.__setitem__(0, b[0]), "setitem"), (lambda a, b: a[:, 1].mul_(b[:, 0]), "mul_"),
    (lambda a, b: torch.add(a, b, out=a), "add"), (lambda a, b: a.view(-1).copy_(b.view(-1)), "copy_"),
    (lambda a, b: a.T.detach().sub_(b.T), "sub_"), (lambda a, b: torch._foreach_add_([a], [b]), "_foreach_add_"),
    (lambda a, b: a.unbind()[1].zero_(), "zero_"), (lambda a, b: F.relu(a, inplace=True), "relu"),
    (lambda a, b: F.relu(a, True), "relu"), (lambda a, b: setattr(a, "data", b[:2]), "data")])
@pytest.mark.parametrize("keep", [0, MUCH])
def test_who_writes_to_a_tensor_is_one_of_its_makers(x, write, name, keep):
    def f(x):
        a, b = x.exp(), x.cos()
        write(a, b)
        return a + 1
    trace, output = trace_of(f, x, keep=keep)
    assert parents(trace, "add") if name == "add" else name in parents(trace, "add")
    writer = [op for op in trace.of(name) if trace.of("add")[-1] in op.users]
    assert writer and {*trace.of("exp")} <= trace.leading_to(output)


def test_writes_into_the_base_of_a_view(x):
    def f(x):
        a = x.exp()
        view = a[1:]
        a.mul_(2)
        return view.sum()
    trace, _ = trace_of(f, x)
    assert parents(trace, "sum") == ["getitem", "mul_"]


def test_earlier_writes_are_behind_later_makers(x):
    def f(x):
        a = x.exp().mul_(2)
        return a.view(-1).sum()
    trace, _ = trace_of(f, x)
    assert [parents(trace, name) for name in ("sum", "view", "mul_")] == [["view"], ["mul_"], ["exp"]]


def test_running_statistics(x):
    norm = nn.BatchNorm1d(3)
    model = nn.Sequential(norm, Returns(lambda t: t + norm.running_mean))
    before = norm.running_mean.clone()
    trace, _ = trace_of(model, x)
    assert parents(trace, "add") == ["batch_norm"]
    mean = next(v for v in trace.of("batch_norm")[0].given if v.shape == (3,))
    assert torch.equal(mean.numbers, before) and not torch.equal(norm.running_mean, before)
    trace, _ = trace_of(model.eval(), x)
    assert [op.function for op in trace.of("add")[0].parents] == ["batch_norm"]  # of its output


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t): return torch.from_numpy(t.detach().numpy()*2)
    @staticmethod
    def backward(ctx, g): return g*2


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t): return t
    @staticmethod
    def backward(ctx, g): return g


class View(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t): return t.view(-1)
    @staticmethod
    def backward(ctx, g): return g.view(4, 3)


@pytest.mark.parametrize("function", [Twice, Same, View])
def test_outputs_of_an_autograd_function(leaf, function):
    trace, output = trace_of(lambda t: function.apply(t.exp()).sum(), leaf)
    assert trace.of("exp")[0] in trace.leading_to(output)
    assert (UNSEEN in trace.blind) == (function is Twice) and ODD not in trace.blind  # the trace sees into the others
    assert trace.of("exp")[0].users


@pytest.mark.parametrize("function", [Same, View])
@pytest.mark.parametrize("keep", [0, MUCH])
def test_outputs_of_an_autograd_function_without_a_graph(x, function, keep):
    trace, output = trace_of(lambda t: function.apply(t.exp()).sum(), x, keep=keep)
    assert trace.of("exp")[0] in trace.leading_to(output)


def test_an_unseen_output_is_found_though_nobody_got_it(leaf):
    with traced(net := nn.Linear(3, 2), MUCH) as trace: loss = Twice.apply(net(leaf))
    assert {op.function for op in trace.leading_to(loss)} == {"linear", HIDDEN} and UNSEEN in trace.blind


def test_attributes_that_are_no_functions(leaf):
    trace, output = trace_of(lambda t: t.exp().data.sum(), leaf)
    assert parents(trace, "sum") == ["data"] and trace.of("exp")[0] in trace.leading_to(output)


def test_what_comes_from_before_has_no_maker(leaf):
    trace, _ = trace_of(lambda t: t*2, leaf.exp())
    assert not trace.ops[0].parents and not trace.blind


def test_functions_that_return_what_they_got(x):
    trace, _ = trace_of(lambda t: F.dropout(t.exp(), training=False).contiguous().sum(), x)
    assert [op.function for op in trace.top] == ["exp", "dropout", "contiguous", "sum"]
    assert all(op.users for op in trace.top[:-1])  # their results are used
    value = trace.of("contiguous")[0].y
    assert value.was is trace.of("dropout")[0].y and value.was.was is trace.of("exp")[0].y


def test_functions_that_only_read(x):
    def f(t):
        a = t.exp()
        return torch.ones(a.size(0))
    trace, _ = trace_of(f, x)
    size, = trace.of("size")
    assert trace.of("exp")[0].users == [size] and not size.made


def test_a_user_is_never_in_the_body_of_another_function(x):
    def f(t):
        a = F.normalize(t.exp())
        return a*F.softmax(a, -1)
    trace, output = trace_of(f, x)
    for op in trace.ops: assert all(parent.around in (None, op.around) for parent in op.parents)
    assert trace.leading_to(output) == {*trace.top} and {op.around and op.around.function for op in trace.ops} > {None}


def test_checkpoints(leaf):
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    for reentrant in (True, False):
        model = Returns(lambda t, reentrant=reentrant: checkpoint(net, t, use_reentrant=reentrant))
        model.net = net
        with traced(model, MUCH) as trace:
            output = model(leaf).sum()
            output.backward()
        assert [op.function for op in trace.top] == ["linear", "tanh", "sum", "backward"]  # and not again
        assert trace.leading_to(output) == {*trace.top[:3]} and trace.of("sum")[0].x.requires_grad


# The numbers of the moment


@pytest.mark.parametrize("write", [
    lambda a: a.relu_(), lambda a: a.__setitem__(0, 9.), lambda a: torch.exp(a, out=a), lambda a: a[1:].zero_(),
    lambda a: F.relu(a, True), lambda a: F.relu_(a), lambda a: nn.ReLU(inplace=True)(a), lambda a: a.T.mul_(3),
    lambda a: a.data.add_(3)])
@pytest.mark.parametrize("inference", [False, True])
def test_numbers_are_those_of_the_moment(x, write, inference):
    def f(t):
        a = t.sin()
        write(a)
        return a.cos()
    with torch.inference_mode(inference): trace, _ = trace_of(f, x)
    assert torch.equal(trace.of("sin")[0].y.numbers, x.sin())
    a = x.sin()
    with torch.inference_mode(inference): write(a)
    assert torch.equal(trace.of("cos")[0].x.numbers, a) and not torch.equal(a, x.sin())


def test_a_tensor_that_is_seen_for_the_first_time_when_it_is_written(x):
    before = x.clone()
    trace, _ = trace_of(lambda t: t.mul_(2), x)
    assert torch.equal(trace.ops[0].x.numbers, before) and torch.equal(trace.ops[0].y.numbers, before*2)


def test_writes_that_cannot_be_foreseen_take_the_numbers(x):
    hidden = torch.jit.script(Adds())
    model = Returns(lambda t: t.exp())
    with traced(model, MUCH) as trace:
        output = model(x)
        hidden(output)
        output.sum()
    assert trace.of("exp")[0].y.numbers is None and UNSEEN in trace.blind
    model.weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD(model.parameters(), .1)
    with traced(model, MUCH) as trace: loss = (model(x)*model.weight).sum()
    weight = trace.of("mul")[0].given[1]
    assert torch.equal(weight.numbers, torch.ones(3))
    loss.backward()
    optimizer.step()
    assert weight.numbers is None


class Adds(nn.Module):
    def forward(self, t: torch.Tensor): return t.add_(1)


def test_a_budget(x):
    big = torch.randn(1000)
    with traced(model := Returns(lambda t: t.exp().sum() + t.sin().sum()), 4100) as trace: model(big)
    assert trace.is_cut and trace.of("exp")[0].y.numbers is None and trace.of("sum")[0].y.numbers is not None
    assert trace.ops[0].x.numbers is not None  # the first one fits
    with traced(model, 12020) as trace: model(big)
    assert not trace.is_cut and all(v.numbers is not None for op in trace.top for v in op.given + op.made)
    heavy = nn.Linear(1000, 1)
    with traced(heavy, 4004) as trace: heavy(big)
    assert not trace.is_cut and trace.ops[0].given[1].numbers is not None  # weights take no memory
    def writes(t):
        for _ in range(3): t.mul_(2)
        return t
    with traced(model := Returns(writes), 9000) as trace: model(big)
    assert trace.is_cut and [op.x.numbers is None for op in trace.ops] == [False, True, True]


def test_a_copy_of_an_expanded_tensor_is_counted_as_large_as_it_is():
    def f(t):
        wide = t.expand(10**6, 4)
        t.mul_(2)
        return wide
    trace, _ = trace_of(f, torch.randn(4), keep=10**6)
    assert trace.is_cut and trace.of("expand")[0].y.numbers is None and trace.of("expand")[0].x.numbers is not None


# Nothing is held


class Opaque:
    "No container: what is in it cannot be found."
    def __init__(self, held): self.held = held


def test_names_and_shapes_hold_no_tensor_and_no_graph(leaf):
    gc.disable()
    try:
        alive = []
        def f(odd, t):
            a = t.exp()
            b = a*2
            b.register_hook(lambda g, held=a: g + held)
            alive.extend(map(weakref.ref, (a, b, odd, odd.held)))
            return b.detach().sum()
        model = Returns(f)
        with traced(model) as trace: model(Opaque(torch.ones(2)), leaf)
        assert [ref() for ref in alive] == [None]*4 and len(trace.ops) == 6
        assert trace.of("exp")[0].y.tensor is None and trace.of("exp")[0].y.edge is None
    finally: gc.enable()


def test_after_an_error_only_what_failed_is_held(x):
    gc.disable()
    try:
        alive = []
        def f(t):
            a, b = t.exp(), torch.ones(7)
            alive.extend(map(weakref.ref, (a, b)))
            return torch.cat([a.sin(), b])
        model, message = Returns(f), ""
        with traced(model) as trace:
            try: model(x)
            except RuntimeError as error: message = str(error)
        assert message and alive[0]() is None and alive[1]() is not None
        assert trace.failed is trace.of("cat")[0] and [t.shape for t in trace.raised[0][1][0]] == [(4, 3), (7,)]
        trace.close()
        assert alive[1]() is None and not trace.ops
    finally: gc.enable()


def test_closing_frees_everything_at_once(leaf):
    gc.disable()
    try:
        alive = []
        def f(t):
            a = t.exp()
            a[0] = 1
            b = Twice.apply(a)
            alive.extend([weakref.ref(a), weakref.ref(b), weakref.ref(b.grad_fn)])
            return F.normalize(b).sum()
        model = Returns(f)
        with traced(model, MUCH) as trace: model(leaf)
        numbers = [weakref.ref(v.numbers) for op in trace.ops for v in (*op.given, *op.made)]
        ops, calls = [*map(weakref.ref, trace.ops)], [*map(weakref.ref, trace.calls)]
        assert all(ref() is not None for ref in numbers) and alive[2]() is not None
        trace.close()
        assert not any(ref() for ref in ops + calls) and [ref() for ref in numbers + alive] == [None]*(len(numbers) + 3)
    finally: gc.enable()


# What can't be looked into


def test_layers_that_are_taken_whole(x):
    parts = nn.Linear(3, 5), nn.Sequential(nn.Linear(5, 5), nn.ReLU()), nn.Dropout(), nn.Linear(5, 2)
    net = nn.Sequential(*parts).eval()
    for keep in (0, MUCH):
        trace, output = trace_of(net, x, keep=keep, whole=lambda m: m in (net[1], net[2]))
        assert [op.name for op in trace.ops] == ["0/linear#0", "1/Sequential#0", "2/Dropout#0", "3/linear#0"]
        assert [op.call is None for op in trace.ops] == [False, True, True, False]
        assert trace.leading_to(output) == {*trace.ops}
        assert [call.name for call in trace.calls] == ["0", "1", "2", "3", ""] and not trace.blind
        assert "trace_of" not in trace.ops[1].line and trace.ops[1].line


def test_scripted_layers(x):
    model = nn.Sequential(nn.Linear(3, 4), torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.Tanh())), nn.Linear(4, 2))
    with pytest.warns(hl.HookWarning, match="scripted"): trace, output = trace_of(model, x)
    assert [op.name for op in trace.top] == ["0/linear#0", "1/Sequential#0", "2/linear#0"]
    assert PARTS_COMPILED in trace.blind
    assert trace.leading_to(output) == {*trace.top} and [call.name for call in trace.calls] == ["0", "1", "2", ""]
    assert model[1](x.new_ones(1, 4)).shape == (1, 4) and not vars(model[1])["_forward_hooks"]
    assert type(vars(model[1])["_forward_hooks"]).__name__ == "OrderedDict"


@pytest.mark.parametrize("way", ["wrapper", "layer", "root"])
def test_compiled_layers(x, way):
    torch._dynamo.reset()
    inner = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    runs = []
    def backend(graph, given):
        runs.append(graph)
        return graph.forward
    if way == "layer": inner.compile(backend=backend)
    model = nn.Sequential(torch.compile(inner, backend=backend) if way != "layer" else inner, nn.Linear(3, 2))
    if way == "root": model = torch.compile(nn.Sequential(inner, nn.Linear(3, 2)), backend=backend)
    plain = model(x)
    trace, output = trace_of(model, x)
    assert PARTS_COMPILED in trace.blind and torch.equal(output, plain) and runs
    expected = {"root": ["/Sequential#0"]}.get(way, ["0/Sequential#0", "1/linear#0"])
    assert [op.name for op in trace.ops] == expected and trace.leading_to(output) == {*trace.ops}
    with torch.compiler.set_stance("force_eager"): trace, output = trace_of(model, x)
    names = [call.name for call in trace.calls]
    assert [op.function for op in trace.top] == ["linear", "tanh", "linear"] and sorted(names) == sorted({*names})


def test_a_layer_that_torch_runs_as_one_function(x):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(2, 5, 8)
    with torch.no_grad():
        trace, output = trace_of(layer, x)
        assert torch.equal(output, layer(x))
    assert [op.name for op in trace.ops] == ["/TransformerEncoderLayer#0"] and trace.blind == {RUN_AS_ONE}
    assert trace.leading_to(output) == {*trace.ops}


def test_compiling_inside_writes_nothing(x):
    torch._dynamo.reset()
    compiled = torch.compile(lambda t: t.sin().cos(), backend="eager")
    trace, output = trace_of(lambda t: compiled(t.exp()).sum(), x)
    assert trace.of("exp") and trace.of("sum") and torch.equal(output, x.exp().sin().cos().sum())


def test_transforms_of_functions(x):
    def f(t):
        a = torch.vmap(lambda row: row.sin().sum())(t.exp())
        return a + torch.func.grad(lambda t: t.cos().sum())(t)[:, 0]
    trace, output = trace_of(f, x)
    assert {op.function for op in trace.top} >= {"exp", "add"} and not trace.of("sin", "cos")
    assert TRANSFORMED in trace.blind
    from torch._subclasses.fake_tensor import FakeTensorMode
    fakes = FakeTensorMode(allow_non_fake_inputs=True)
    with fakes: trace, _ = trace_of(lambda t: t.exp() + torch.ones(3), x)
    assert all(v.numbers is None or type(v.numbers) is torch.Tensor for op in trace.ops for v in op.given + op.made)
    gc.collect()
    trace, _ = trace_of(f, x, keep=0)
    assert trace.of("sin")[0].given[0].shape == (3,)  # it holds no tensor


def test_backward_passes(leaf):
    def f(t):
        y = t.exp()
        y.register_hook(lambda g: g.mul(2).sub(1))
        gradient, = torch.autograd.grad(y.sum(), t, create_graph=True)
        return gradient.square().sum()
    trace, output = trace_of(f, leaf)
    assert not trace.of("sub") and [op.function for op in trace.leading_to(output)].count("grad") == 1


def test_a_backward_pass_that_a_layer_runs_is_in_the_body_of_a_function(leaf):
    class Halved(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t): return t/2
        @staticmethod
        def backward(ctx, gradient): return gradient.sin()
    trace, output = trace_of(lambda t: torch.autograd.grad(Halved.apply(t).sum(), t)[0], leaf)
    assert [op.around.function for op in trace.ops if op.function == "sin"] == ["grad"]
    with traced(net := Returns(Halved.apply)) as trace: net(leaf).sum().backward()
    assert [op.function for op in trace.top] == ["div", "sum", "backward"]
    assert "sin" not in [op.function for op in trace.ops]


@pytest.mark.parametrize("change", [lambda t: setattr(t, "data", torch.ones(2)), lambda t: t.unsqueeze_(0),
                                    lambda t: t.resize_(2)])
@pytest.mark.parametrize("inference", [False, True])
def test_shapes_are_those_of_the_moment(x, change, inference):
    def f(t):
        t = t.clone()
        change(t)
        return t.shape, t.cos()
    with torch.inference_mode(inference): trace, (shape, _) = trace_of(f, x, keep=0)
    assert trace.of("cos")[0].x.shape == trace.of("cos")[0].y.shape == shape != x.shape


def test_without_links_there_are_only_names_and_shapes(x):
    net = nn.Sequential(nn.Linear(3, 5), Returns(F.normalize))
    full, _ = trace_of(net, x, keep=0)
    trace, _ = trace_of(net, x, keep=0, linked=False)
    def shown(trace): return [(op.name, str(op.given), str(op.made), op.around and op.around.name) for op in trace.ops]
    assert shown(trace) == shown(full) and "normalize" in str(shown(trace))
    assert not any(op.parents or op.args or op.place for op in trace.ops) and not trace.memory and not trace.known
    assert not trace.calls


def test_tensors_of_all_kinds(x):
    class Own(torch.Tensor): pass
    def f(t):
        sparse = t.to_sparse()
        nested = torch.nested.nested_tensor([t, t[:2]])
        own = t.as_subclass(Own).exp()
        meta = torch.ones(2, device="meta") + 1
        empty = torch.ones(0, 3).sum()
        small = t.bfloat16().sum() + t.isnan().sum()
        return sparse.to_dense().sum() + nested[0].sum() + own.sum() + empty + small, meta
    trace, (output, _) = trace_of(f, x)
    plain, _ = f(x)
    assert torch.equal(output, plain) and str(trace.of("nested_tensor")[0].y if trace.of("nested_tensor") else "") in (
        "", "nested, 2 parts")
    assert {op.function for op in trace.leading_to(output)} >= {"to_sparse", "to_dense", "exp", "bfloat16"}


def test_dicts_and_other_containers(x):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = Returns(lambda t: {"a": t.exp(), "b": [t.sin(), None]})
        def forward(self, *, x):
            found = self.part(x)
            return found["a"] + found["b"][0]
    with traced(net := Net(), MUCH) as trace: net(x=x)
    call, root = trace.calls
    assert [str(v) for v in call.made] == ["4×3"]*2 and call.out["b"][1] is None and call.out["a"] is call.made[0]
    assert root.kwargs["x"] is root.given[0] and parents(trace, "add") == ["exp", "sin"]


# Passes


def test_layers_that_run_several_times(x):
    shared = nn.Linear(3, 3)
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = shared, shared
        def forward(self, t): return self.b(self.a(t))
    with traced(net := Net()) as trace: first, second = net(x), net(x)
    assert [op.name for op in trace.ops] == ["a/linear#0", "a/linear#1"]*2
    assert trace.leading_to(first) == {*trace.ops[:2]} and trace.leading_to(second) == {*trace.ops[2:]}


def test_a_model_that_only_holds_models(x):
    net = nn.ModuleDict({"a": nn.Linear(3, 4), "b": nn.Linear(4, 2)})
    with traced(net) as trace: output = net["b"](net["a"](x)).sum()
    assert [op.name for op in trace.ops] == ["a/linear#0", "b/linear#0", "/sum#0"]
    assert trace.leading_to(output) == {*trace.ops} and [call.name for call in trace.calls] == ["a", "b"]


def test_a_pass_inside_a_pass(x):
    net, deep = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), []
    def again(m, given, output):
        if not deep:
            deep.append(1)
            return output + net(output)
    handle = net[0].register_forward_hook(again)
    with traced(net) as trace: output = net(x)
    handle.remove()
    assert [op.function for op in trace.ops] == ["linear", "linear", "tanh", "add", "tanh"]
    assert trace.leading_to(output) == {*trace.ops} and len(trace.calls) == 6


def test_threads(x):
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net
        def forward(self, t):
            found, stacks, both = {}, {}, threading.Barrier(2)
            def work(i):
                both.wait()
                found[i] = self.net(t + i).exp()
                stacks[i] = _get_current_function_mode_stack()
            threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
            for one in threads: one.start()
            for one in threads: one.join()
            assert stacks == {0: [], 1: []}
            return found[0] + found[1]
    with traced(model := Two()) as trace: output = model(x)
    assert sorted(op.function for op in trace.top) == ["add", "linear", "linear", "tanh", "tanh"]
    assert len(trace.calls) == 7 and [op.function for op in trace.of("add")] == ["add"] and output.shape == x.shape


def test_other_modes_and_hooks_go_on(x):
    class Other(TorchFunctionMode):
        def __init__(self): self.seen = []
        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen.append(func.__name__)
            return func(*args, **(kwargs or {}))
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    with Other() as other, traced(net, MUCH) as trace, hl.hook_calls(net, torch.tanh) as h, traced(net) as second:
        net(x)
    assert [op.function for op in trace.ops] == [op.function for op in second.ops] == ["linear", "tanh"] and len(h) == 1
    assert other.seen == ["linear", "tanh"]


def test_operations_can_be_run_with_other_arguments(x):
    from hooklab.hooks.function_mode import run_with
    seen = []
    def halve(op, args, kwargs, run):
        seen.append((op.name, [*op.given], [*op.made]))
        return run_with(run, (args[0]/2,), kwargs) if op.function == "exp" else run()
    trace, output = trace_of(lambda t: t.exp() + 1, x, f=halve)
    assert torch.equal(output, (x/2).exp() + 1) and [name for name, *_ in seen] == ["/exp#0", "/add#0"]
    assert [[*map(str, given)] for _, given, _ in seen] == [["4×3"]]*2 and not any(made for *_, made in seen)
    assert trace.leading_to(output) == {*trace.top}


# Errors


class Stop(BaseException): pass


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, Stop])
@pytest.mark.parametrize("where", ["layer", "function", "hook", "loss", "body", "f"])
def test_errors_leave_nothing(x, kind, where):
    def fail(*_): raise kind("here")
    class Odd(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *_, **__): raise kind("here")
    net = nn.Sequential(nn.Linear(3, 3), Returns(lambda t: t.exp() if where != "layer" else fail()), nn.Tanh())
    handle = net[0].register_forward_hook(fail) if where == "hook" else None
    if where == "function": net[1].make = lambda t: torch.add(t, t.as_subclass(Odd))
    if where == "body": net[1].make = lambda t: F.softmax(t, object())
    options = {"f": lambda op, args, kwargs, run: fail() if op.function == "exp" else run()} if where == "f" else {}
    expected = TypeError if where == "body" else kind
    with pytest.raises(expected), traced(net, MUCH, **options) as trace:
        net(x)
        fail()
    if handle: handle.remove()
    assert not hl.hooks_on(net) and not _get_current_function_mode_stack()
    assert trace.failed is (trace.ops[-1] if where in ("function", "body", "f") else None)
    assert all("_forward_hooks" in vars(m) and not m._forward_hooks for m in net.modules())
    trace, output = trace_of(nn.Sequential(*net[::2]), x)
    assert len(trace.leading_to(output)) == 2


def test_an_error_that_the_model_catches_is_no_failure(x):
    def f(t):
        with suppress(RuntimeError): t.view(7)
        return t.exp()
    trace, output = trace_of(f, x)
    assert trace.failed is None and trace.of("view")[0].made == [] and trace.leading_to(output) == {*trace.of("exp")}


def test_a_function_in_whose_body_an_error_was_caught_did_not_fail(x):
    class Odd(nn.Module):
        def forward(self, t):
            try: F.normalize(t, dim=9)
            except IndexError: return t + 1
    trace, _ = trace_of(Odd(), x)
    assert trace.failed is None


def test_after_ctrl_c_in_the_middle_a_pass_begins_anew(x):
    stop = [True]
    def f(t):
        if stop: raise KeyboardInterrupt
        return t.exp()
    model = nn.Sequential(nn.Linear(3, 3), Returns(f))
    with traced(model) as trace:
        with pytest.raises(KeyboardInterrupt): model(x)
        stop.clear()
        output = model(x)
    assert {op.name for op in trace.leading_to(output)} == {"1/exp#0", "0/linear#0"}
    around = [(call.name, call.around and call.around.name) for call in trace.calls]
    assert around[-3:] == [("0", ""), ("1", ""), ("", None)]


def test_what_cannot_be_written_down_does_not_end_the_pass(x):
    class Hostile(torch.Tensor):
        @property
        def shape(self): raise ValueError("no shape")
    trace, output = trace_of(lambda t: t.as_subclass(Hostile).exp().as_subclass(torch.Tensor) + 1, x)
    assert torch.equal(output, x.exp() + 1) and trace.blind


# Each call, without a model


def test_each_call_is_run_by_a_function(x):
    seen = []
    def run(function, args, kwargs):
        seen.append(function.__name__)
        return function(*args, **kwargs)*(2 if function is torch.exp else 1)
    with each_call(run): y = F.softmax(torch.exp(x), -1)
    assert seen == ["exp", "softmax"] and torch.equal(y, F.softmax(x.exp()*2, -1))
    for error in (ValueError, KeyboardInterrupt):
        def fail(*_, error=error): raise error
        with pytest.raises(error), each_call(fail): x.exp()
        assert not _get_current_function_mode_stack()
    with traced(net := nn.Linear(3, 2)) as trace, each_call(run): net(x)
    assert [op.function for op in trace.ops] == ["linear"]
