"""What ran and when: order, printed checks, timelines, and the model untouched."""
import copy
import gc
import io
import pickle
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import hooklab as hl
from hooklab.debug.timeline import Timeline
from hooklab.debug.trace import ForwardCheck, GradientCheck, VerboseExecution, checked_gradients, execution_order

pytestmark = pytest.mark.filterwarnings("error::hooklab.hooks.copies.HookWarning")


class Block(nn.Module):
    "Returns a dict, takes a keyword, uses one layer twice, and one never; draws random numbers and has statistics."
    def __init__(self):
        super().__init__()
        self.unused, self.act = nn.Linear(4, 4), nn.ReLU(inplace=True)
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.BatchNorm1d(4)])
        self.drop, self.rnn = nn.Dropout(), nn.GRU(4, 4, batch_first=True)

    def forward(self, x, *, twice=True):
        x = self.act(self.layers[1](self.layers[0](x)))
        if twice: x = self.act(self.drop(x))
        out, h = self.rnn(x[:, None])
        return {"out": out, "h": h}


order = ["layers.0", "layers.1", "act", "drop", "act", "rnn"]


def loss(out): return sum(t.pow(2).sum() for t in hl.tensors(out))


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Block()


@pytest.fixture
def x():
    torch.manual_seed(1)
    return torch.randn(3, 4, requires_grad=True)


# execution_order

@pytest.mark.parametrize("training", [True, False])
def test_execution_order_leaves_no_trace(net, x, training):
    net.train(training)
    buffers = dict(net.named_buffers())
    state, versions = copy.deepcopy(net.state_dict()), [b._version for b in buffers.values()]
    rng, given = torch.get_rng_state(), x.clone()
    assert execution_order(net, x) == order
    assert execution_order(net, x, twice=False) == ["layers.0", "layers.1", "act", "rnn"]
    assert net.training == training and not hl.hooks_on(net)
    assert torch.equal(rng, torch.get_rng_state()) and torch.equal(x, given)
    assert all(net.get_buffer(name) is b for name, b in buffers.items())
    assert [b._version for b in buffers.values()] == versions
    assert all(torch.equal(t, state[name]) for name, t in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())


def test_execution_order_restores_buffers_when_the_model_fails(net, x):
    def fails(m, i): raise KeyboardInterrupt
    foreign = net.rnn.register_forward_pre_hook(fails)
    buffers, rng = dict(net.named_buffers()), torch.get_rng_state()
    with pytest.raises(KeyboardInterrupt): execution_order(net, x)
    foreign.remove()
    assert all(net.get_buffer(name) is b for name, b in buffers.items())
    assert not hl.hooks_on(net) and torch.equal(rng, torch.get_rng_state())
    assert net.layers[1].num_batches_tracked == 0


def test_execution_order_builds_no_graph(net, x):
    seen = []
    foreign = net.rnn.register_forward_hook(lambda m, i, o: seen.append(o[0].requires_grad))
    execution_order(net, x)
    foreign.remove()
    assert seen == [False] and torch.is_grad_enabled()


@pytest.mark.gpu
def test_execution_order_restores_the_generator_of_the_gpu(net, x):
    net, x = net.cuda(), x.detach().cuda()
    rng = torch.cuda.get_rng_state()
    assert execution_order(net, x) == order and torch.equal(rng, torch.cuda.get_rng_state())


def test_execution_order_of_resnet18():
    resnet = pytest.importorskip("torchvision").models.resnet18()
    names = execution_order(resnet, torch.randn(2, 3, 64, 64))
    assert len(names) == 75 and len(set(names)) == 67
    assert names[:3] == ["conv1", "bn1", "relu"] and names[-2:] == ["avgpool", "fc"]
    places = [names.index(name) for name in ("layer2.0.downsample.1", "layer2.0.downsample", "layer2.0", "layer2")]
    assert places == sorted(places)
    assert set(vars(resnet)) == set(vars(type(resnet)(type(resnet.layer1[0]), [2, 2, 2, 2])))  # no attribute was added
    assert "__name__" not in vars(resnet.conv1)


def test_execution_order_of_compiled_and_wrapped_models(net, x):
    from torch._dynamo.testing import CompileCounter
    torch._dynamo.reset()
    counted = CompileCounter()
    compiled = torch.compile(net.eval(), backend=counted)
    expected = compiled(x)
    n = counted.frame_count
    assert execution_order(compiled, x) == order and counted.frame_count == n  # nothing is compiled to find it
    assert torch.equal(compiled(x)["out"], expected["out"])
    torch._dynamo.reset()


def test_execution_order_of_a_model_that_takes_gradients():
    class Forces(nn.Module):
        def __init__(self):
            super().__init__()
            self.energy, self.norm = nn.Linear(3, 1), nn.BatchNorm1d(1)
        def forward(self, places):
            places.requires_grad_()
            self.norm(self.energy(places)).square().sum().backward()
            return self.energy(places.grad)
    model, places, state = Forces(), torch.randn(4, 3), torch.get_rng_state()
    assert execution_order(model, places) == ["energy", "norm", "energy"] and not hl.hooks_on(model)
    assert all(p.grad is None for p in model.parameters()) and not places.requires_grad and places.grad is None
    assert model.norm.num_batches_tracked == 0 and torch.equal(torch.get_rng_state(), state)


def test_execution_order_refuses_what_it_would_change(x):
    lazy = nn.Sequential(nn.LazyLinear(3))
    with pytest.raises(ValueError, match="lazy"): execution_order(lazy, x)
    assert lazy[0].has_uninitialized_params()
    lazy(x)
    assert execution_order(lazy, x) == ["0"]
    with pytest.raises(TypeError, match="expected a torch.nn.Module"): execution_order("model", x)


# VerboseExecution, ForwardCheck, GradientCheck

resnet50_lines = """conv1: torch.Size([10, 64, 112, 112])
bn1: torch.Size([10, 64, 112, 112])
relu: torch.Size([10, 64, 112, 112])
maxpool: torch.Size([10, 64, 56, 56])
layer1: torch.Size([10, 256, 56, 56])
layer2: torch.Size([10, 512, 28, 28])
layer3: torch.Size([10, 1024, 14, 14])
layer4: torch.Size([10, 2048, 7, 7])
avgpool: torch.Size([10, 2048, 1, 1])
fc: torch.Size([10, 1000])
"""


def test_verbose_execution_of_resnet50(capsys):
    with torch.device("meta"): verbose = VerboseExecution(pytest.importorskip("torchvision").models.resnet50())
    assert verbose(torch.ones(10, 3, 224, 224, device="meta")).shape == (10, 1000)
    assert capsys.readouterr().out == resnet50_lines


def test_verbose_execution_goes_into_lists_and_containers(net, x):
    lines = []
    with pytest.warns(hl.HookWarning, match="unused: hooked, but never called"):
        with VerboseExecution(net, file=lines.append) as verbose: out = verbose(x, twice=True)
    assert [line.split(":")[0] for line in lines] == ["layers.0", "layers.1", "act", "drop", "act", "rnn.0", "rnn.1"]
    assert lines[-1] == "rnn.1: torch.Size([1, 3, 4])" and set(out) == {"out", "h"} and not hl.hooks_on(net)
    verbose(x)
    assert len(lines) == 7
    check = ForwardCheck(net, file=lines.append)
    check(x)
    with pytest.warns(hl.HookWarning, match="unused: hooked, but never called"): check.remove()


def test_forward_check_prints_means(x):
    net, out, seen = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)), io.StringIO(), []
    with ForwardCheck(net, file=out) as check, hl.hook_outputs(net) as hooks:
        check(x)
        seen = [f"{h.name},{h.stored.mean().item()}" for h in hooks]
    assert out.getvalue().splitlines() == seen


@pytest.mark.parametrize("cls", [VerboseExecution, ForwardCheck])
def test_reporters_are_removed(cls, x, capsys):
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    before, keys = net(x), list(net.state_dict())
    check = cls(net)
    with cls(copy.deepcopy(net).eval(), file=str) as evaluating:
        evaluating(x)
        assert check.training and not evaluating.training
    assert torch.equal(check(x), before) and len(capsys.readouterr().out.splitlines()) == 2
    other = copy.deepcopy(check)
    assert torch.equal(other(x), before) and torch.equal(pickle.loads(pickle.dumps(net))(x), before)
    assert not capsys.readouterr().out  # copies are silent
    check.remove()
    check.remove()
    check(x)
    assert not capsys.readouterr().out and not hl.hooks_on(net) and list(net.state_dict()) == keys
    assert "__name__" not in vars(net[0])
    with pytest.raises(ZeroDivisionError), cls(net): 1/0
    assert not hl.hooks_on(net)
    alive = weakref.ref(check)
    del check
    assert alive() is None  # no cycle holds it
    with pytest.raises(TypeError, match="file="): cls(net, file=3)
    with pytest.raises(TypeError, match="expected a torch.nn.Module"): cls(3)
    assert not hl.hooks_on(net)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_gradient_check_is_removed(x, error):
    net, lines = nn.Linear(4, 1), []
    with pytest.raises(error), checked_gradients(net, file=lines.append):
        net(x).sum().backward()
        raise error
    assert len(lines) == 2 and not hl.hooks_on(net)
    def full(line): raise OSError("no space left")
    with pytest.raises(OSError, match="no space"), checked_gradients(net, file=full): net(x).sum().backward()
    assert not hl.hooks_on(net)


@pytest.mark.parametrize("cls", [VerboseExecution, ForwardCheck])
def test_an_error_while_printing_reaches_the_user(cls, x):
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    def full(line): raise OSError("no space left")
    with pytest.raises(OSError, match="no space"):
        with cls(net, file=full) as check: check(x)
    assert not hl.hooks_on(net)


@pytest.mark.parametrize("t,mean", [(torch.tensor([1, 2]), 1.5), (torch.tensor([True, False]), 0.5),
                                    (torch.ones(2, dtype=torch.bfloat16), 1.0),
                                    (torch.eye(2).to_sparse(), 0.5), (torch.tensor([1j, 1]), 0.5 + 0.5j)])
def test_forward_check_of_all_sorts_of_tensors(t, mean):
    lines = []
    with ForwardCheck(nn.Sequential(nn.Identity()), file=lines.append) as check: check(t)
    assert lines == [f"0,{mean}"]


def test_forward_check_on_the_meta_device():
    lines = []
    with ForwardCheck(nn.Sequential(nn.Identity()), file=lines.append) as check: check(torch.ones(2, device="meta"))
    assert lines == ["0,nan"]


def test_gradient_check_returns_the_model_and_prints_what_gradients_are(x, capsys):
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    checked = GradientCheck(net)
    assert checked is net and type(net) is nn.Sequential
    checked(x).pow(2).sum().backward()
    lines = dict(line.split(",") for line in capsys.readouterr().out.splitlines())
    expected = {name: p.grad.mean().item() for name, p in net.named_parameters()}
    assert {name: float(mean) for name, mean in lines.items()} == expected
    assert [name[0] for name in lines] == ["2", "2", "1", "1", "0", "0"]
    assert list(lines).index("1.weight") < list(lines).index("1.bias")
    assert {a.kind for a in hl.hooks_on(net) if "." in a.layer} == {"tensor"} and all(a.ours for a in hl.hooks_on(net))
    assert hl.remove_hooks(net) == 6 and not hl.hooks_on(net)
    net(x).sum().backward()
    assert not capsys.readouterr().out


def test_gradient_check_changes_no_gradient(net, x):
    torch.manual_seed(2)
    loss(net(x)).backward()
    expected = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    net.zero_grad()
    lines = []
    with pytest.warns(hl.HookWarning, match="unused.weight, unused.bias: no gradient"):
        with checked_gradients(net, file=lines.append):
            torch.manual_seed(2)
            loss(net(x)).backward()
    assert all(torch.equal(a, b) for a, b in zip(expected, [p.grad for p in net.parameters() if p.grad is not None]))
    assert len(lines) == len(expected)
    assert not hl.hooks_on(net)


def test_gradient_check_of_frozen_shared_and_sparse_parameters(capsys):
    net = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].requires_grad_(False)
    net[3].weight = net[2].weight
    with checked_gradients(net): net(torch.tensor([1, 2])).sum().backward()
    lines = dict(line.split(",") for line in capsys.readouterr().out.splitlines())
    assert set(lines) == {"3.bias", "2.weight", "2.bias", "0.weight"}
    assert float(lines["0.weight"]) == pytest.approx(net[0].weight.grad.to_dense().mean().item())
    with pytest.raises(ValueError, match="requires a gradient"): GradientCheck(net.requires_grad_(False))
    with pytest.raises(TypeError, match="file="): GradientCheck(net, file=3)
    with pytest.raises(TypeError, match="expected a torch.nn.Module"): GradientCheck([net])


def test_gradient_check_within_accumulation_shows_each_part(x):
    net, lines = nn.Linear(4, 1), []
    with checked_gradients(net, file=lines.append):
        for _ in range(2): net(x).sum().backward()
    assert [line for line in lines if line.startswith("bias")] == ["bias,3.0"]*2 and net.bias.grad == 6


@pytest.mark.parametrize("cls", [VerboseExecution, ForwardCheck])
def test_reporters_of_compiled_models(cls, x):
    torch._dynamo.reset()
    net, lines = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), []
    compiled = torch.compile(net, backend="eager")
    expected = compiled(x)
    check = cls(compiled, file=lines.append)
    for _ in range(3): assert torch.equal(check(x), expected)
    assert [line[0] for line in lines] == ["0", "1"]*3
    check.remove()
    check(x)
    assert len(lines) == 6
    torch._dynamo.reset()


# Timeline

def kinds(timeline, name): return [e.label for e in timeline.rows if e.name == name]


def test_timeline_of_a_step(x):
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    expected = torch.autograd.grad(net(x).sum(), [x, *net.parameters()])
    with Timeline(net) as t:
        net(x).sum().backward()
        assert {a.kind for a in hl.hooks_on(net)} >= {"timeline", "post_accumulate"}
    assert [(e.kind, e.name) for e in t.rows if e.kind.startswith("forward")] == [
        ("forward pre", "(model)"), ("forward pre", "0"), ("forward", "0"), ("forward pre", "1"), ("forward", "1"),
        ("forward pre", "2"), ("forward", "2"), ("forward", "(model)")]
    assert [e.name for e in t.rows if e.kind == "backward"] == ["2", "1", "0", "(model)"]
    assert [e.name.split(".")[0] for e in t.rows if e.kind == "accumulated"] == ["2", "2", "0", "0"]
    assert [e.shapes for e in t.rows if e.name == "2"] == ["3×4", "3×2", "3×2", "3×4"]
    assert not hl.hooks_on(net)
    assert all(torch.equal(a, b) for a, b in zip(expected, [x.grad, *(p.grad for p in net.parameters())]))
    n = len(t.rows)
    net(x).sum().backward()
    assert len(t.rows) == n == len(repr(t).splitlines())
    with Timeline(net) as t: y = net(x)
    y.sum().backward()  # too late
    assert {e.kind for e in t.rows} == {"forward pre", "forward"}


def test_timeline_is_attached_to_all_layers_or_to_none(net, monkeypatch):
    def fails(*_): raise KeyboardInterrupt
    monkeypatch.setattr(net.rnn.weight_hh_l0, "register_post_accumulate_grad_hook", fails, raising=False)
    with pytest.raises(KeyboardInterrupt): Timeline(net)
    assert not hl.hooks_on(net)
    with pytest.raises(LookupError, match="'rrn'; it has rnn"): Timeline(net, "rrn")
    with pytest.raises(TypeError, match="expected a torch.nn.Module"): Timeline(3)


def test_timeline_of_reused_layers_dicts_and_layers_that_never_run(net, x):
    with Timeline(net) as t: loss(net(x)).backward()
    assert kinds(t, "act") == ["forward pre", "forward"]*2 + ["backward pre", "backward"]*2 and not kinds(t, "unused")
    assert [e.name for e in t.rows if e.kind == "forward"] == [*order, "(model)"]
    with Timeline(net, "act", nn.GRU) as t: loss(net(x)).backward()
    assert {e.name for e in t.rows if e.kind != "accumulated"} == {"act", "rnn"}
    assert {e.name.split(".")[0] for e in t.rows if e.kind == "accumulated"} == {"rnn"}
    with torch.no_grad(), Timeline(net) as t: net(x)
    assert {e.kind for e in t.rows} == {"forward pre", "forward"}


@pytest.mark.parametrize("reentrant", [False, True])
def test_timeline_of_checkpointing(x, reentrant):
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh())
    with Timeline(net, "*") as t: net[2:](checkpoint(net[:2], x, use_reentrant=reentrant)).sum().backward()
    assert kinds(t, "0").count("forward again") == 1 and kinds(t, "2").count("forward again") == 0
    for name in "0123": assert kinds(t, name).count("backward") == 1, name


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_timeline_shows_where_a_model_failed(x, error):
    net = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 4)))
    def fails(m, i): raise error
    foreign = net[1][1].register_forward_pre_hook(fails)
    with pytest.raises(error), Timeline(net) as t: net(x)
    foreign.remove()
    assert not hl.hooks_on(net)
    assert [e.name for e in t.rows if e.kind == "forward"] == ["0", "1.0"]
    with Timeline(net) as again: net(x)  # what was remembered of the failed calls does not confuse the next ones
    assert len(again.rows) == 10


def test_timeline_holds_no_tensor_and_no_model():
    net = nn.Sequential(nn.Linear(4, 4))
    with Timeline(net) as t: out = net(torch.randn(2, 4))
    gone = [weakref.ref(net), weakref.ref(out)]
    del net, out
    gc.collect()
    assert [g() for g in gone] == [None, None] and len(t.rows) == 4


def test_timeline_of_a_meta_model_and_a_compiled_one(x):
    with torch.device("meta"): net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with Timeline(net) as t: net(torch.ones(2, 4, device="meta")).sum().backward()
    assert kinds(t, "1") == ["forward pre", "forward", "backward pre", "backward"]
    torch._dynamo.reset()
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compiled = torch.compile(net, backend="aot_eager")
    expected = compiled(x)
    with pytest.warns(hl.HookWarning, match="split the compiled graph"), Timeline(compiled) as t:
        for _ in range(3): assert torch.equal(compiled(x), expected)
        compiled(x).sum().backward()
    for name in ("0", "1", "(model)"):
        assert kinds(t, name).count("forward") == 4 and kinds(t, name).count("backward") == 1
    assert torch.equal(compiled(x), expected)
    torch._dynamo.reset()


def test_plot(net, x):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("agg")
    with Timeline(net) as t: loss(net(x)).backward()
    ax = t.plot()
    lanes = [label.get_text() for label in ax.get_yticklabels()]
    assert lanes == ["(model)", "layers.0", "layers.1", "act", "drop", "rnn"] and ax.get_ylim()[0] > ax.get_ylim()[1]
    calls = sum(e.kind in ("forward", "backward") for e in t.rows)
    assert sum(len(bars) for bars in ax.containers) == calls
    legend = {text.get_text() for text in ax.get_legend().get_texts()}
    assert legend == {"forward", "backward", "gradient of a parameter"}
    starts = [bar.get_x() for bars in ax.containers for bar in bars]
    assert all(t.rows[int(start)].kind.endswith("pre") for start in starts)
    own = plt.figure().subplots()
    assert t.plot(ax=own) is own
    with Timeline(net) as empty: pass
    assert repr(empty) == "nothing has run yet" and empty.plot()
    def fails(m, i): raise ValueError
    foreign = net.drop.register_forward_pre_hook(fails)
    with pytest.raises(ValueError), Timeline(net) as broken: net(x)
    foreign.remove()
    assert "did not finish" in {text.get_text() for text in broken.plot().get_legend().get_texts()}
    plt.close("all")


def test_plot_of_a_model_that_calls_itself_and_has_parameters_of_its_own(x):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("agg")

    class Again(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))
        def forward(self, x, n=2): return self(x*self.scale, n - 1) if n else x

    net = Again()
    with Timeline(net) as t: net(x).sum().backward()
    ax = t.plot()
    assert sorted((bar.get_x(), bar.get_width()) for bar in ax.containers[0]) == [(0, 5), (1, 3), (2, 1)]
    (diamonds,) = ax.get_lines()
    assert [t.rows[int(i)].name for i in diamonds.get_xdata()] == ["scale"] and list(diamonds.get_ydata()) == [0]
    plt.close("all")
