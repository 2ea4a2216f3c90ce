"""Hooks where torch does something unusual: transforms, other modes and devices, copies, threads, scripted and exported models."""
import copy
import pickle
import sys
import threading
import warnings
from pathlib import Path

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, vmap

import hooklab as hl
from support.forks import forked_without
from support.traces import difference, ours, run, same

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated:FutureWarning")


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 2))


@pytest.fixture
def x(): return torch.randn(3, 4, generator=torch.Generator().manual_seed(1))


def both(m, grad_in, grad_out): return grad_in, grad_out


# --- torch.func
def test_vmap_shows_the_whole_batch(model, x):
    batch = torch.stack([x, x + 1])
    plain = vmap(model)(batch)
    with hl.hook_outputs(model, names="*") as outputs, hl.Hooks(model, lambda m, i, o: {"mean": o.mean(), "o": o}, names="*") as means:
        assert same(vmap(model)(batch), plain)
        assert same(outputs["2"].stored, plain.detach()) and outputs["0"].stored.shape == (2, 3, 8)
        torch.testing.assert_close(means["2"].stored["mean"] + 0, plain.mean((1, 2)).detach())  # usable after vmap has ended
    with hl.hook_output(model, detach=False) as h:
        vmap(model)(batch)
        with pytest.raises(RuntimeError, match="vmap"): h.stored + 1


def test_functional_transforms(model, x):
    parameters = dict(model.named_parameters())
    def f(parameters, x): return functional_call(model, parameters, (x,)).pow(2).sum()
    def everything():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return hl.tensors([grad(f)(parameters, x), vmap(grad(f), (None, 0))(parameters, x[:, None]), jacrev(model)(x[0]), jacfwd(model)(x[0]),
                               hessian(lambda x: model(x).sum().pow(2))(x[0])])
    plain = everything()
    for kind in ("forward", "forward_pre", "backward", "backward_pre"):
        with hl.Hooks(model, lambda m, *given: given, kind=kind, names="*") as hooks:
            assert all(map(same, plain, everything()))
            assert all(h.fired and (hl.tensors(h.stored)[-1] + 1).isfinite().all() for h in hooks)
    assert ours(model) == []


@pytest.mark.filterwarnings("error::hooklab.hooks.copies.HookWarning")
def test_gradients_of_views_in_a_transform(x):
    model = nn.Sequential(nn.Linear(4, 4), nn.Unflatten(-1, (2, 2)), nn.Tanh(), nn.Flatten(-2), nn.Linear(4, 1))
    with hl.hook_outputs(model, names="*", grad=True) as right: model(x).sum().backward()
    with hl.hook_outputs(model, names="*", grad=True) as found: vmap(grad(lambda x: model(x).sum()))(x)
    for name, gradient in right.by_name.items(): torch.testing.assert_close(found[name].stored, gradient)


def test_forward_mode_gradients(model, x):
    def tangent():
        with forward_ad.dual_level(): return forward_ad.unpack_dual(model(forward_ad.make_dual(x, torch.ones_like(x)))).tangent
    plain = tangent()
    with hl.hook_outputs(model, names="*") as hooks:
        assert same(plain, tangent()) and all(h.n_calls == 1 for h in hooks)


# --- modes and devices
def test_inference_mode(model, x):
    "What was stored in inference mode is of use to autograd afterwards."
    with hl.hook_outputs(model, names="*") as hooks, torch.inference_mode(): model(x)
    with hl.hook_outputs(model, names="*") as hooks:
        with torch.inference_mode(): out = model(x)
        w = torch.ones(2, requires_grad=True)
        (hooks["2"].stored*w).sum().backward()
        assert torch.equal(w.grad, out.sum(0)) and not hooks["0"].stored.is_inference()


def test_inference_tensors_outside_of_their_mode(model, x):
    with torch.inference_mode(): y = x*2
    with torch.no_grad(), hl.Hook(model, lambda m, i, o: (i, o)) as h:
        model(y)
        assert not any(t.is_inference() for t in hl.tensors(h.stored))


def test_autocast(model, x):
    def step(model, inputs):
        with torch.autocast("cpu", torch.bfloat16): return model(inputs["x"]).float()
    plain = run(model, {"x": x}, forward=step)
    with hl.hook_outputs(model, names="*") as outputs, hl.Hooks(model, both, is_forward=False, names="*") as grads:
        assert difference(plain, run(model, {"x": x}, forward=step)) == []
        assert all(h.stored.dtype == torch.bfloat16 for h in outputs) and grads["2"].stored[1][0].dtype == torch.bfloat16


def test_meta_device():
    with torch.device("meta"): model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(3, 4)
    with hl.hook_outputs(model, names="*") as outputs, hl.Hooks(model, both, is_forward=False, names="*") as grads:
        model(x).sum().backward()
        assert [h.stored.shape for h in outputs] == [(3, 8), (3, 8), (3, 2)] and [h.stored[1][0].shape for h in grads] == [(3, 8), (3, 8), (3, 2)]
        assert all(h.stored.is_meta for h in outputs)


def test_other_dtypes(model, x):
    for dtype in (torch.float64, torch.bfloat16, torch.complex64):
        m = nn.Linear(4, 2, dtype=dtype)
        with hl.hook_output(m) as h, hl.hook_output(m, grad=True) as g:
            m(x.to(dtype)).abs().sum().backward()
            assert h.stored.dtype == g.stored[0].dtype == dtype


def test_lazy_layers(x):
    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU(inplace=True))
    with hl.hook_outputs(model, names="*") as outputs, hl.Hooks(model, both, is_forward=False, names="*") as grads:
        model(x).sum().backward()
        assert outputs["0"].stored.shape == grads["0"].stored[1][0].shape == (3, 3)


# --- copies
def hooked(model): return [hl.Hooks(model, lambda m, *given: None, kind=kind, names="*", detach=False) for kind in ("forward", "forward_pre", "backward", "backward_pre")]


def test_copy_has_no_live_hook(model, x):
    "A deep copy runs past the hooks of the original, which stay; the copy of a hook is off."
    hooks, out = hooked(model), model(x)
    twin = copy.deepcopy(model)
    before = [h.n_calls for group in hooks for h in group]
    assert ours(twin) == [] and same(twin(x).detach(), out.detach())
    assert before == [h.n_calls for group in hooks for h in group] and len(ours(model)) == 16
    other = copy.deepcopy({"model": model, "hooks": hooks})
    assert all(group.removed for group in other["hooks"]) and ours(other["model"]) == []
    for group in hooks: group.remove()
    assert list(twin.state_dict()) == list(model.state_dict())


def test_pickled_model_needs_no_hooklab(model, x, tmp_path):
    "It is loaded in a process that cannot import hooklab."
    hooks = hooked(model)
    torch.save(model, tmp_path/"model.pt")
    torch.save(model.state_dict(), tmp_path/"state.pt")
    with open(tmp_path/"model.pkl", "wb") as file: pickle.dump(model, file)
    torch.save((x, model(x).detach()), tmp_path/"x.pt")
    def load():
        x, y = torch.load("x.pt")
        for model in (torch.load("model.pt", weights_only=False), pickle.loads(Path("model.pkl").read_bytes())):
            assert torch.equal(model(x), y)
            model(x).sum().backward()
            model.load_state_dict(torch.load("state.pt"))

    done = forked_without("hooklab", load, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for group in hooks: group.remove()


def test_pickled_hooks_are_off(model):
    hooks = hl.hook_outputs(model, names="*")
    back = pickle.loads(pickle.dumps(hooks))
    assert back.removed and [h.name for h in back] == ["0", "1", "2"]
    assert back.stored == [None]*3 and back[0].calls == []
    back.remove()
    hooks.remove()


# --- threads
def in_threads(work, n=8):
    failed = []
    def guarded(i):
        try: work(i)
        except Exception as e: failed.append(e)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # as often as possible
    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(n)]
    try:
        for t in threads: t.start()
        for t in threads: t.join()
    finally: sys.setswitchinterval(before)
    assert failed == []


def test_threads_share_hooks(model):
    "Each call is seen once, with its own gradients, when eight threads run one model at the same time."
    n = 20
    with hl.Hooks(dict(model.named_children()), both, is_forward=False, keep=8*n) as hooks, hl.Hook(model, lambda m, i, o: i[0], keep=8*n) as h:
        def work(i):
            for k in range(n):
                x = torch.full((2, 4), i*n + k + 1., requires_grad=True)
                (model(x)*x[0, 0].detach()).sum().backward()
        in_threads(work)
        assert sorted(t[0, 0].item() for t in h.calls) == list(range(1, 8*n + 1))
        weight = model[2].weight.detach()
        for name in ("0", "1", "2"): assert len(hooks[name].calls) == 8*n, name
        for (grad_in,), (grad_out,) in hooks["2"].calls: torch.testing.assert_close(grad_in, grad_out @ weight)  # of the same call
        assert sorted(g[1][0][0, 0].item() for g in hooks["2"].calls) == list(range(1, 8*n + 1))


def test_threads_with_models_of_their_own():
    def work(i):
        torch.manual_seed(i)
        model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 2)), torch.randn(3, 4, requires_grad=True)
        for _ in range(10):
            with hl.hook_outputs(model, names="*") as outputs, hl.Hooks(model, both, is_forward=False, names="*") as grads:
                y = model(x)
                y.sum().backward()
                assert same(outputs["2"].stored, y.detach()) and torch.equal(grads["2"].stored[1][0], torch.ones(3, 2))
            assert ours(model) == []
    in_threads(work)


# --- what torch made of a model
class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.plain, self.scripted = nn.Linear(4, 4), torch.jit.script(nn.Linear(4, 4))
    def forward(self, x): return self.scripted(self.plain(x))


@pytest.mark.parametrize("attach", [
    lambda model, x: hl.hook_output(torch.jit.script(model)), lambda model, x: hl.hook_outputs(torch.jit.script(model), names="*"),
    lambda model, x: hl.hook_output(torch.jit.trace(model, x)),
    lambda model, x: hl.hook_outputs(Mixed(), names="scripted"), lambda model, x: hl.hook_output(Mixed().scripted),
    lambda model, x: hl.hook_outputs(Mixed(), names=["*", "scripted"]),
    lambda model, x: hl.hook_outputs(nn.Sequential(torch.jit.script(model)), names="*")])
def test_scripted(model, x, attach):
    with pytest.raises(TypeError, match="is scripted: torch runs it without hooks"): attach(model, x)


def test_a_scripted_layer_that_was_named_says_how_to_leave_it_out():
    words = 'scripted is scripted: .*, or the layers next to it: a pattern such as "\\*" leaves it out'
    with pytest.raises(TypeError, match=words):
        hl.hook_outputs(Mixed(), names=["plain", "scripted"])


class Parts(nn.Module):
    "One part is scripted, traced or frozen."
    def __init__(self, make):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)
        self.part = make(nn.Sequential(nn.Linear(4, 4), nn.Tanh()).eval())

    def forward(self, x): return self.b(self.part(self.a(x)))


def train(m, x):
    with hl.ActivationStats().on(m) as stats:
        m(x).sum().backward()
        stats.step()
    return stats.names


def outputs(m, x):
    with hl.hook_outputs(m, names="*") as hooks: m(x)
    return [h.name for h in hooks if h.stored is not None]


def watch(m, x):
    with torch.no_grad(): m.b.weight[0, 0] = float("nan")
    with pytest.raises(hl.NonFiniteError, match="b.weight"), hl.find_nan(m): m(x)
    return True


MAKES = {"scripted": torch.jit.script, "traced": lambda m: torch.jit.trace(m, torch.ones(1, 4)),
         "frozen": lambda m: torch.jit.freeze(torch.jit.script(m))}
WATCHES = {
    "ActivationStats": lambda m, x: train(m, x) == ["a", "b"], "hook_outputs": lambda m, x: outputs(m, x) == ["a", "b"],
    "find_nan": watch, "summary": lambda m, x: [(r.name, r.calls, r.note) for r in hl.summary(m, x).rows] == [
        ("", 1, ""), ("a", 1, ""), ("b", 1, ""), ("part", None, "scripted")],
    "summary in train mode": lambda m, x: hl.summary(m, x, train=True)["b"].output == (3, 2),
    "cost": lambda m, x: [r.name for r in hl.cost(m, x, warmup=1, repeat=1).rows] == ["(model)", "a", "b"],
    "execution_order": lambda m, x: hl.execution_order(m, x) == ["a", "b"],
    "features": lambda m, x: list(hl.FeatureExtractor(m, "*")(x)) == ["a", "b"],
    "calls": lambda m, x: bool(hl.calls(m, x).rows),
}


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("tool", WATCHES)
def test_beside_a_scripted_part_the_rest_is_watched(x, tool, make):
    m = Parts(MAKES[make])
    words = r"^part \(a \w+ of Sequential\): torch runs scripted code without hooks"
    with pytest.warns(hl.HookWarning, match=words) as told: assert WATCHES[tool](m, x)
    assert sum(w.category is hl.HookWarning for w in told) == 1 and ours(m) == []


@pytest.mark.parametrize("make", MAKES)
def test_compare_beside_a_scripted_part(x, make):
    a = Parts(MAKES[make])
    with pytest.warns(hl.HookWarning, match="^part"): same_models = hl.compare(a, copy.deepcopy(a), x)
    assert same_models.same
    c = copy.deepcopy(a)
    with torch.no_grad(): c.b.weight[1] += 1
    with pytest.warns(hl.HookWarning, match="^part"): assert hl.compare(a, c, x).first.name == "b"


def test_scripted_part_can_be_left_out(x):
    model = Mixed()
    with hl.hook_outputs(model, names="plain") as hooks:
        y = model(x)
        assert same(model.scripted(hooks["plain"].stored), y)
    assert hl.hooks_on(torch.jit.script(nn.Linear(1, 1))) == []


def test_exported(model, x):
    "An exported program is no module; the module made from it has no layers any more, only their parameters."
    exported = torch.export.export(model, (x,))
    with pytest.raises(TypeError, match="expected a torch.nn.Module, got ExportedProgram"): hl.hook_output(exported)
    with pytest.raises(TypeError, match="an exported program runs as one graph"): hl.hook_outputs(exported.module(), names="0")
    with hl.hook_outputs(model, names="*") as hooks:
        again = torch.export.export(model, (x,)).module()
        assert all(h.n_calls == 1 for h in hooks)
        again(x)
        assert all(h.n_calls == 1 for h in hooks)  # what was exported runs without hooks
    assert torch.equal(again(x), model(x))


def test_symbolically_traced(model, x):
    graph = torch.fx.symbolic_trace(model)
    with hl.hook_outputs(graph, names="*") as hooks:
        y = graph(x)
        assert same(hooks["2"].stored, y.detach())
    with hl.hook_outputs(model, names="*") as hooks:
        assert torch.equal(torch.fx.symbolic_trace(model)(x), y)
        assert ours(model) != []
        model(x)
    assert ours(model) == []


def test_traced_with_hooks_on(model, x):
    "Hooks look while torch traces, and are not in what it has traced."
    with hl.hook_outputs(model, names="*") as hooks:
        traced = torch.jit.trace(model, x)
        calls = [h.n_calls for h in hooks]
        assert torch.equal(traced(x), model(x)) and hooks[0].n_calls == 1
    assert calls[0] >= 1


# --- data parallel replicas
def test_replicas_share_hooks(model, x):
    "What DataParallel makes of a model for each device: its hooks are the original's."
    with hl.Hook(model, lambda m, i, o: o, keep=2) as h:
        replica = model._replicate_for_data_parallel()
        for name, child in model._modules.items(): replica._modules[name] = child
        y = replica(x)
        assert same(h.stored, y.detach()) and h.n_calls == 1
