"""What the page "What works where" says, done and compared: a test for each of its cells. The table is works.json."""
import warnings
from contextlib import contextmanager

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import hooklab as hl
from support import works
from support.processes import failures_in_two

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

extras = {"quantized by torchao": "torchao", "quantized by torchao, dynamically": "torchao", "MONAI's MetaTensor": "monai",
          "offloaded": "accelerate", "Accelerate": "accelerate", "Fabric": "lightning", "Lightning": "lightning",
          "generate()": "transformers"}
without_gloo = pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")


def cells():
    for row, ways in works.RUNS.items():
        for way, make in ways.items():
            marks = [getattr(pytest.mark, mark) for mark in works.MARKS[make]]
            if row in works.IN_TWO: marks.append(without_gloo)
            name = f"{row} ({way})" if way else row
            for use in works.USES: yield pytest.param(row, use, make, marks=marks, id=f"{name}-{use}")


@pytest.mark.parametrize("row,use,make", list(cells()))
def test_cell(row, use, make):
    if "peers" in works.MARKS[make]: pytest.importorskip(extras[row])
    if row == "quantized by torch.ao" and "x86" not in torch.backends.quantized.supported_engines:
        pytest.skip("this torch cannot quantize here")
    if row == "DataParallel" and "gpu" not in works.MARKS[make] and torch.cuda.is_available():
        pytest.skip("beside a GPU it takes no empty list of devices")
    works.check_cell(row, use, make)


class InTwo:
    "A cell, as a check that `failures_in_two` can send to another process."
    def __init__(self, row, use): self.row, self.use, self.__name__ = row, use, f"{row}-{use}"
    def __call__(self, rank): works.check_cell(self.row, self.use, works.IN_TWO[self.row])


@pytest.fixture(scope="module")
def failures(tmp_path_factory):
    checks = [InTwo(row, use) for row in works.IN_TWO for use in works.USES]
    return failures_in_two(checks, tmp_path_factory.mktemp("two"))


@pytest.mark.slow
@without_gloo
@pytest.mark.parametrize("use", works.USES)
@pytest.mark.parametrize("row", works.IN_TWO)
def test_in_two_processes(failures, row, use):
    failed = [text for name, text in failures.items() if name.rpartition(" ")[0] == f"{row}-{use}"]
    assert not failed, "\n".join(failed)


# --- the table

def test_the_table_has_every_run_and_every_use():
    rows = [row["row"] for row in works.DECLARED["rows"]]
    assert sorted(rows) == sorted(works.RUNS) and list(works.DECLARED["uses"]) == list(works.USES)
    for row in works.DECLARED["rows"]:
        assert row["cells"].keys() <= {"all", *works.USES} and row["cells"]["all"]
        plain = all(text == "works" for text in row["cells"].values())
        assert plain != ("instead" in row), f"{row['row']}: say what to do instead where, and only where, not all works"


@pytest.mark.parametrize("found,declared,right", [
    (("works", ""), "works", True), (("works", "more"), "works", False), (("works", "it says more"), "works; says: more", True),
    (("works", ""), "works; says: more", False), (("works", ""), "refused: TypeError: no", False),
    (("works", ""), "reported: no", False), (("refused", TypeError("Oh no")), "refused: TypeError: no", True),
    (("refused", TypeError("Oh yes")), "refused: TypeError: no", False),
    (("refused", KeyError("no")), "refused: TypeError: no", False),
    (("refused", NotImplementedError("no")), "refused: RuntimeError: no", True),
    (("refused", TypeError("no")), "works", False), (("refused", TypeError("no")), "reported: no", False),
    (("reported", "silent, because"), "reported: silent", True), (("reported", "seen"), "reported: silent", False),
    (("reported", "silent"), "works", False), (("reported", "TypeError"), "refused: TypeError: TypeError", False),
])
def test_what_fits(found, declared, right):
    assert works.fits(found, declared) == right


def test_wrong_and_silent_is_no_outcome():
    "What a cell must not do: these runs lie about what was computed, or see nothing and say nothing."
    wrong = works.Net()
    with torch.no_grad(): wrong.last.bias += 1
    for use in ("capture", "gradients", "edit", "statistics", "features", "compare_losses"):
        with pytest.raises(AssertionError): works.outcome(works.USES[use], works.Run(works.Net(), twin=wrong))
    more = works.Run(works.Net(), x=torch.ones(5, 4))
    with pytest.raises(AssertionError): works.outcome(works.USES["summary"], more)
    with pytest.raises(AssertionError): works.outcome(works.USES["find_nan"], works.Run(works.Net(), fault="last"))
    elsewhere = works.Run(works.Net(), fails="last")
    with pytest.raises(AssertionError): works.outcome(works.USES["explain_errors"], elsewhere)
    with pytest.raises(AssertionError, match="no warning told it"): works.outcome(lambda run: False, works.eager())


# --- layers that never run, because something replays: all that listens says so

@pytest.fixture
def graphed(): return works.graph_stand_in()


@pytest.mark.parametrize("listen", [
    lambda m: hl.hook_output(m.first), lambda m: hl.hook_output(m.first, grad=True),
    lambda m: hl.hook_outputs(m.children()), lambda m: hl.hook_outputs(m, names="*", cpu=True),
    lambda m: hl.Hooks(m, lambda m, i: i, names="first", kind="forward_pre"),
    lambda m: hl.Hooks(m, lambda m, *given: given, names="first", kind="backward"),
    lambda m: hl.edit_output(m.first, lambda m, i, o: o), lambda m: hl.edit_input(m, lambda m, i: i, names="first"),
    lambda m: hl.VerboseExecution(m), lambda m: hl.ForwardCheck(m),
    lambda m: hl.ActivationStats().on(m), lambda m: hl.ActivationStats(grads=True).on(m),
], ids=["output", "gradient", "outputs", "outputs on the CPU", "inputs", "gradients", "edit of an output", "edit of an input",
        "VerboseExecution", "ForwardCheck", "statistics", "statistics of gradients"])
def test_a_replay_is_reported(graphed, listen):
    with pytest.warns(hl.HookWarning, match="never called"), listen(graphed.model):
        works.loss_of(graphed.model(graphed.x)).backward()


@pytest.mark.parametrize("listen", [
    lambda run: hl.find_nan(run.model), lambda run: hl.Timeline(run.model), lambda run: hl.Timeline(run.model, "first"),
    lambda run: hl.Timeline(run.model, "first", "last"),
], ids=["find_nan", "Timeline", "Timeline of a layer", "Timeline of layers"])
def test_a_model_none_of_whose_layers_run_is_reported(graphed, listen):
    with pytest.warns(hl.HookWarning, match=r"the model ran, but none of its layers did \(first.*ahead of time replays") as said:
        with listen(graphed): works.loss_of(graphed.model(graphed.x)).backward()
    assert len(said) == 1 and said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(KeyError), listen(graphed):
            graphed.model(graphed.x)
            raise KeyError
        eager = works.eager()
        with listen(eager): works.loss_of(eager.model(eager.x)).backward()


def test_the_order_of_nothing_is_reported(graphed):
    with pytest.warns(hl.HookWarning, match="none of its layers did") as said: assert hl.execution_order(graphed.model, graphed.x) == []
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert hl.execution_order(works.Net(), graphed.x)


def test_a_replay_is_seen_from_outside(graphed):
    "The model itself is called; only what is in it is not."
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with hl.hook_output(graphed.model) as h, hl.hook_output(graphed.model, grad=True) as g:
            y = graphed.model(graphed.x)
            works.loss_of(y).backward()
            assert torch.equal(h.stored, y) and torch.equal(g.stored[0], 2*y)


# --- on a GPU that is only pretended: whatever would wait for it raises

class NoWait(TorchDispatchMode):
    "What comes from the device to the CPU is waited for."
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        there = any(t.device.type != "cpu" for t in hl.tensors([args, kwargs]))
        if there and any(t.device.type == "cpu" for t in hl.tensors(out)):
            raise RuntimeError(f"{func} waits for the device")
        return out


@contextmanager
def pretended(device):
    """A model and an input on a device that this machine need not have. Tensors are fake: they have shapes and no numbers.

    Without a GPU, torch can make no graph of what is on "cuda"; on "lazy", of which hooklab knows as little, it can."""
    model = works.Net()
    with FakeTensorMode(allow_non_fake_inputs=True):
        for m in model.children():
            for name, p in m.named_parameters():
                setattr(m, name, nn.Parameter(torch.empty(p.shape, device=device), requires_grad=device != "cuda"))
        x = torch.empty(3, 4, device=device)
        assert x.device.type == model.first.weight.device.type == device
        with NoWait(): yield model, x


@pytest.fixture(params=["cuda", "lazy"])
def device(request):
    try:
        with FakeTensorMode(): torch.empty(2, 2, device=request.param)[0].mean()
    except RuntimeError: pytest.skip("this torch asks the driver, even for fake tensors")
    return request.param


@pytest.fixture
def forward(device):
    with pretended(device) as (model, x): yield model, x


@pytest.fixture
def backward():
    with pretended("lazy") as (model, x): yield model, x


def there(device, found): return [t.device.type for t in hl.tensors(found)] == [device]*len(hl.tensors(found)) != []


reads = {"item": lambda t: t.item(), "tolist": lambda t: t.tolist(), "bool": lambda t: bool(t),
         "nonzero": lambda t: t.nonzero(), "cpu": lambda t: t.cpu()}


@pytest.mark.parametrize("read", reads.values(), ids=reads)
def test_what_waits_is_noticed(device, read):
    with pretended(device) as (model, x), pytest.raises(Exception) as e:
        with hl.Hooks(model, lambda m, i, o: read(o.sum()), names="*"): model(x)
    said = f"{type(e.value).__name__} {e.value}"
    assert any(word in said for word in ("waits for the device", "DataDependent", "DynamicOutputShape"))


@pytest.mark.parametrize("kind", ["forward", "forward_pre"])
@pytest.mark.parametrize("options", [{}, {"detach": False}, {"keep": 2}], ids=["copies", "as they are", "kept"])
def test_a_look_does_not_wait(device, forward, kind, options):
    model, x = forward
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hl.HookWarning)  # ReLU works in place
        def keep(m, *given): return {"given": given, "mean": given[-1][0].mean()}
        with hl.Hooks(model, keep, kind=kind, names="*", **options) as hooks:
            for _ in range(2): model(x)
            assert all(h.n_calls == 1 and there(device, h.stored) for h in hooks)


def test_outputs_do_not_wait(device, forward):
    model, x = forward
    with hl.hook_outputs(model, names="*") as hooks:
        model(x)
        assert [t.shape for t in hooks.stored] == [(3, 8), (3, 8), (3, 8), (3, 2)] and there(device, hooks.stored)


@pytest.mark.parametrize("kind", ["backward", "backward_pre"])
@pytest.mark.parametrize("options", [{}, {"detach": False}, {"keep": 2}], ids=["copies", "as they are", "kept"])
def test_a_look_at_gradients_does_not_wait(backward, kind, options):
    model, x = backward
    with hl.Hooks(model, lambda m, *given: given[-1][0].norm(), kind=kind, names="*", **options) as hooks:
        for _ in range(2): model(x).pow(2).sum().backward()
        assert all(h.n_calls == 1 and there("lazy", h.stored) for h in hooks)


def test_gradients_do_not_wait(backward):
    model, x = backward
    with hl.hook_outputs(model, names="*", grad=True) as hooks:
        model(x).pow(2).sum().backward()
        assert [g.shape for (g,) in hooks.stored] == [(3, 8), (3, 8), (3, 8), (3, 2)] and there("lazy", hooks.stored)


def test_gradients_of_tensors_do_not_wait(backward):
    model, x = backward
    middle, seen = model.first(x), []
    with hl.tensor_hook(middle) as h, hl.parameter_hooks(model, lambda name, g: seen.append(g)):
        model.last(middle).sum().backward()
        assert there("lazy", h.stored) and there("lazy", seen)


changes = {"scale": lambda: hl.scale(.5), "patch": lambda: hl.patch(1.), "steer": lambda: hl.steer(torch.ones(8)),
           "function": lambda: lambda m, i, o: o + 1}


def edits(device, change):
    with (pretended(device) as (model, x), hl.edit_output(model, change(), names="share") as hooks,
          hl.edit_input(model.last, hl.scale(2.))):
        y = model(x)
        if device == "lazy": y.sum().backward()
        assert there(device, y) and hooks[0].n_calls == 1


@pytest.mark.parametrize("change", changes.values(), ids=changes)
def test_edits_do_not_wait(device, change): edits(device, change)


@pytest.mark.parametrize("to", [0., "mean"])
def test_ablation_does_not_wait(device, to):
    change, real = hl.ablate([0, 1], to), torch.ones(2)  # it looks at the numbers of the units, once and here
    try:
        with pretended(device): real.to(device, torch.long)
    except (RuntimeError, NotImplementedError): pytest.skip("this torch does not take real tensors among fake ones")
    edits(device, lambda: change)


@pytest.mark.parametrize("options", [{}, {"detach": True}, {"stop": True}, {"to": torch.float16}],
                         ids=["as they are", "copies", "stop", "to"])
def test_features_do_not_wait(device, forward, options):
    model, x = forward
    features = hl.FeatureExtractor(model.eval(), ["act", "share"], **options)(x)
    assert list(features) == ["act", "share"] and there(device, features)


@pytest.mark.parametrize("by", ["value", "norm"])
def test_clipping_does_not_wait(backward, by):
    model, x = backward
    hl.gradient_clipper(model, 1., by=by)
    model(x).sum().backward()
    hl.remove_hooks(model)
    assert there("lazy", [p.grad for p in model.parameters()])
