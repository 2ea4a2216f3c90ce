"""FeatureExtractor: what it returns, in which order, and that a pass, whole or ended early, leaves nothing behind."""
import copy
import gc
import pickle
import threading
import warnings
import weakref
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torchvision.models import resnet18, resnet50, vit_b_16
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.feature_extraction import create_feature_extractor

from hooklab.edit.changes import scale
from hooklab.edit.edits import edit_output
from hooklab.features.extractor import FeatureExtractor
from hooklab.hooks.attached import hooks_on
from hooklab.hooks.copies import HookWarning
from hooklab.hooks.hook import hook_outputs
from hooklab.hooks.select import layers
from support.nets import Checkpointed
from support.portions import one_in

torch.set_num_threads(1)


def nothing(): pass


class Net(nn.Module):
    "Runs `relu` twice and `skipped` never, and can be told to do something in the middle."
    def __init__(self):
        super().__init__()
        self.a, self.bn, self.relu, self.b, self.skipped = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2), nn.Linear(4, 4)
        self.middle = nothing
        self.ran_to_the_end = False

    def forward(self, x, *, shift=0.):
        self.ran_to_the_end = False
        x = self.relu(self.bn(self.a(x)))
        self.middle()
        y = self.b(self.relu(x + shift))
        self.ran_to_the_end = True
        return y


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture
def x(): return torch.randn(3, 4, generator=torch.Generator().manual_seed(1))


def by_hand(model, names, *args, **kwargs):
    "What plain torch hooks see: all calls, in the order in which they finish."
    seen, handles = [], []
    modules = dict(model.named_modules())
    for name in names: handles.append(modules[name].register_forward_hook(lambda m, i, o, name=name: seen.append((name, o))))
    model(*args, **kwargs)
    for handle in handles: handle.remove()
    return seen


# What it returns

def test_as_in_the_first_example():
    with torch.device("meta"): model, x = resnet50(), torch.ones(10, 3, 224, 224)
    features = FeatureExtractor(model, ["layer4", "avgpool"])(x)
    assert {name: list(out.shape) for name, out in features.items()} == {"layer4": [10, 2048, 7, 7], "avgpool": [10, 2048, 1, 1]}


def test_values_and_execution_order(net, x):
    features = FeatureExtractor(net, ["b", "relu", "a"])(x)
    seen = by_hand(net, ["b", "relu", "a"], x)
    assert list(features) == ["a", "relu", "relu#1", "b"]
    assert [name for name, _ in seen] == [name.split("#")[0] for name in features]
    assert all(torch.equal(a, b) for a, (_, b) in zip(features.values(), seen))


def test_same_as_torchvision():
    torch.manual_seed(0)
    model, x = resnet18().eval(), torch.randn(2, 3, 64, 64)
    names = ["layer1", "layer3", "avgpool", "fc"]
    ours, theirs = FeatureExtractor(model, names)(x), create_feature_extractor(model, names)(x)
    assert list(ours) == list(theirs) and all(torch.equal(ours[name], theirs[name]) for name in names)
    ours, theirs = FeatureExtractor(model, "layer1.0.relu")(x), create_feature_extractor(model, ["layer1.0.relu", "layer1.0.relu_1"])(x)
    assert torch.equal(ours["layer1.0.relu"], theirs["layer1.0.relu"]) and torch.equal(ours["layer1.0.relu#1"], theirs["layer1.0.relu_1"])


@pytest.mark.parametrize("names, expected", [
    ("a", ["a"]), (nn.Linear, ["a", "b"]), ("?", ["a", "b"]), (lambda name, m: name in ("bn", "a"), ["a", "bn"]),
    (("b", "a"), ["a", "b"]), (iter(["a", "b"]), ["a", "b"]), ([nn.ReLU, "b"], ["relu", "relu#1", "b"]),
    ("relu#0", ["relu#0"]), ("relu#1", ["relu#1"]), ("r*#1", ["relu#1"]), (["relu", "relu#0"], ["relu", "relu#0", "relu#1"]),
    (["relu", "relu#1"], ["relu", "relu#1"]), ("", [""]), (["", "a"], ["a", ""])])
@pytest.mark.filterwarnings("ignore::hooklab.hooks.copies.HookWarning")
def test_names(net, x, names, expected): assert list(FeatureExtractor(net, names)(x)) == expected


@pytest.mark.parametrize("names, expected", [
    ({"a": "first", "b": "last"}, ["first", "last"]), ({"b": "last", "a": "first"}, ["first", "last"]), ({"a": "b", "b": "a"}, ["b", "a"]),
    ({"": "out", "a": "first"}, ["first", "out"]), ({"relu": "r"}, ["r", "r#1"]), ({"relu#1": "second"}, ["second"]), ({"relu#0": "one"}, ["one"]),
    ({"relu": "r", "relu#1": "second"}, ["r", "r#1", "second"]), ({"bn?": "x"}, LookupError), ({"r*": "r"}, ["r", "r#1"]),
    ({nn.BatchNorm1d: "norm"}, ["norm"]), ({"r*#1": "second"}, ["second"]), (OrderedDict(a="first"), ["first"]), ({"a": "a.b"}, ["a.b"])])
@pytest.mark.parametrize("stop", [False, True])
def test_new_names(net, x, names, expected, stop):
    if not isinstance(expected, list):
        with pytest.raises(expected): FeatureExtractor(net, names)
        return
    extract = FeatureExtractor(net, names, stop=stop)
    found, plain = extract(x), FeatureExtractor(net, list(names))(x)
    if stop: expected = expected[:1] if names in ({"relu": "r"}, {"r*": "r"}) else expected
    assert list(found) == expected and all(map(torch.equal, found.values(), plain.values()))
    assert list(copy.deepcopy(extract)(x)) == list(pickle.loads(pickle.dumps(extract))(x)) == expected
    assert all(name in repr(extract) for name in names.values())


def test_new_names_as_in_torchvision(net, x):
    torch.manual_seed(0)
    model, images = resnet18().eval(), torch.randn(1, 3, 32, 32)
    names = {"layer1": "feat1", "layer3": "feat2"}
    ours, theirs = FeatureExtractor(model, names)(images), create_feature_extractor(model, names)(images)
    cut = IntermediateLayerGetter(model, names)(images)
    assert list(ours) == list(theirs) == list(cut)
    assert all(torch.equal(ours[name], theirs[name]) and torch.equal(ours[name], cut[name]) for name in ours)


@pytest.mark.parametrize("names, error, text", [
    ({"?": "x"}, ValueError, r"'\?' fits 2 layers \(a, b …\), but a new name is for one"), ({nn.Linear: "x"}, ValueError, "fits 3 layers"),
    ({"a": "x", "b": "x"}, ValueError, "'x' is the new name of 'a' and of 'b'"), ({"a": 0}, TypeError, "the one for 'a' is of type int, not a string"),
    ({"a": None}, TypeError, "not a string"), ({"a": "x#1"}, ValueError, "# is for the number of a call"), ({}, ValueError, "no layer was requested"),
    ({"a": "x", "[a]": "y"}, ValueError, "a is given two names, 'x' and 'y'")])
def test_bad_new_names(net, names, error, text):
    with pytest.raises(error, match=text): FeatureExtractor(net, names)


def test_what_was_renamed_and_did_not_run_is_called_as_it_was_asked_for(net, x):
    for names in {"skipped": "x"}, {"relu#2": "x"}:
        with pytest.raises(RuntimeError, match=f"{next(iter(names))} was requested but did not run"): FeatureExtractor(net, names)(x)


def test_a_dict_of_layers_is_no_dict_of_new_names(net, x): assert list(FeatureExtractor(net, layers(net, "[ab]"))(x)) == ["a", "b"]


def test_graph_is_kept(net, x):
    features = FeatureExtractor(net, ["a", "b", ""])(x)
    assert features["b"] is features[""]
    (g,) = torch.autograd.grad(features["b"].sum(), features["a"], retain_graph=True)
    assert g.abs().sum() > 0
    features["b"].sum().backward()
    assert net.a.weight.grad.abs().sum() > 0


def test_detach_and_to(net, x):
    extract = FeatureExtractor(net, ["a", "relu"], detach=True)
    assert not any(f.requires_grad for f in extract(x).values())
    half = FeatureExtractor(net, "a", to=torch.float16)(x)["a"]
    assert half.dtype == torch.float16 and half.requires_grad
    assert torch.equal(FeatureExtractor(net, "a", to=("cpu", torch.float64), detach=True)(x)["a"], extract(x)["a"].double())
    on_meta = FeatureExtractor(net, "a", to="meta")(x)["a"]
    assert on_meta.device.type == "meta"


class Several(nn.Module):
    def forward(self, x): return {"y": x*2, "parts": (x, None), "ids": torch.arange(3)}


def test_containers_and_integers(x):
    model = nn.Sequential(Several())
    out = FeatureExtractor(model, "0", to=torch.float16, detach=True)(x)["0"]
    assert list(out) == ["y", "parts", "ids"] and out["parts"][1] is None
    assert out["y"].dtype == out["parts"][0].dtype == torch.float16 and out["ids"].dtype == torch.int64
    x.zero_()
    assert out["parts"][0].abs().sum() > 0  # a copy of what the layer returned as it was


def test_overwritten_in_place(x):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4), nn.ReLU(inplace=True))
    with pytest.warns(HookWarning, match="^0, 2: changed in place later"): kept = FeatureExtractor(model, ["0", "2"])(x)["0"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ResourceWarning)  # of what an earlier test has left to be collected
        copied = FeatureExtractor(model, ["0", "2"], detach=True)(x)["0"]
        FeatureExtractor(model, ["1", "3"])(x)
    assert kept.min() == 0 and copied.min() < 0 and torch.equal(copied, model[0](x))


def test_arguments_reach_the_model(net, x):
    assert torch.equal(FeatureExtractor(net, "b")(x, shift=1.)["b"], net(x, shift=1.))


def test_sees_edits(net, x):
    plain = FeatureExtractor(net, "a", detach=True)(x)["a"]
    with edit_output(net.a, scale(2.)): assert torch.equal(FeatureExtractor(net, "a", detach=True)(x)["a"], plain*2)


def test_part_of_a_larger_model(net, x):
    class Head(nn.Module):
        def __init__(self): super().__init__(); self.body, self.fc = FeatureExtractor(net, ["a"]), nn.Linear(4, 1)
        def forward(self, x): return self.fc(self.body(x)["a"])
    head = Head()
    assert len(list(head.parameters())) == len(list(net.parameters())) + 2
    assert head.train().body.model.training and not head.eval().body.model.training
    head(x).sum().backward()
    assert net.a.weight.grad is not None


def test_extractor_takes_the_mode_of_the_model(net):
    assert not FeatureExtractor(net, "a").training and FeatureExtractor(net.train(), "a").training


# Nothing left, nothing changed

@pytest.mark.parametrize("options", [{}, {"detach": True}, {"stop": True}])
def test_leaves_nothing(net, x, options):
    before, expected = copy.deepcopy(net.state_dict()), net(x)
    features = FeatureExtractor(net, ["a", "relu"], **options)(x)
    assert not hooks_on(net) and net.state_dict().keys() == before.keys()
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), before.values()))
    assert torch.equal(net(x), expected)
    held = weakref.ref(features["a"])
    del features
    gc.collect()
    assert held() is None


def test_looking_changes_no_bit(x):
    def step(wrap):
        torch.manual_seed(0)
        net = Net().train()
        out = wrap(net)(x)
        out = out[""] if isinstance(out, dict) else out
        out.square().sum().backward()
        return [out, *(p.grad for p in net.parameters() if p.grad is not None), *net.buffers(), torch.get_rng_state()]
    plain, looked = step(lambda net: net), step(lambda net: FeatureExtractor(net, ["a", "bn", "relu", "b", ""]))
    assert len(plain) == len(looked) and all(torch.equal(a, b) for a, b in zip(plain, looked))


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("stop", [False, True])
def test_errors_of_the_model_pass_through(net, x, error, stop):
    def fail(): raise error("in the middle")
    net.middle = fail
    with pytest.raises(error, match="in the middle"): FeatureExtractor(net, "b", stop=stop)(x)
    assert not hooks_on(net)


def test_copies_and_pickles(net, x):
    extract = FeatureExtractor(net, ["a", "relu#1"], to=torch.float64)
    expected = extract(x)
    for twin in (copy.deepcopy(extract), pickle.loads(pickle.dumps(extract))):
        assert twin.model is not net and repr(twin) == repr(extract)
        assert all(torch.equal(a, b) for a, b in zip(twin(x).values(), expected.values(), strict=True))


def test_layers_are_looked_up_in_each_pass(net, x):
    extract = FeatureExtractor(net, "b")
    net.b = nn.Linear(4, 7)
    assert extract(x)["b"].shape == (3, 7)
    del net.b
    with pytest.raises(LookupError, match="b was requested but is no longer in the model"): extract(x)


def test_threads(net):
    extract, wrong = FeatureExtractor(net, ["a", "relu#1"], detach=True), []
    def work(seed):
        for i in range(100):
            x = torch.randn(2, 4, generator=torch.Generator().manual_seed(seed*1000 + i))
            with torch.no_grad(): features = extract(x)
            if list(features) != ["a", "relu#1"] or not torch.equal(features["a"], torch.nn.functional.linear(x, net.a.weight, net.a.bias)): wrong.append(i)
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert not wrong and not hooks_on(net)


def test_inference_mode(net, x):
    with torch.inference_mode(): kept = FeatureExtractor(net, "a", detach=True)(x)["a"]
    nn.Linear(4, 1)(kept).sum().backward()  # autograd can use it


# Ending early

def test_stop_ends_the_pass(net, x):
    seen = FeatureExtractor(net, ["relu", "a"], stop=True)(x)
    assert not net.ran_to_the_end and list(seen) == ["a", "relu"]
    assert torch.equal(seen["relu"], by_hand(net, ["relu"], x)[0][1])
    FeatureExtractor(net, "relu#1", stop=True)(x)
    assert not net.ran_to_the_end
    assert list(FeatureExtractor(net, ["a", ""], stop=True)(x)) == ["a", ""] and net.ran_to_the_end


def test_stop_keeps_the_graph(net, x):
    FeatureExtractor(net, "a", stop=True)(x)["a"].sum().backward()
    assert net.a.weight.grad is not None


@pytest.mark.parametrize("which", ["all", "one"])
def test_stop_is_for_eval_mode(net, x, which):
    (net if which == "all" else net.bn).train()
    with pytest.raises(RuntimeError, match=f"but {'the model' if which == 'all' else 'bn'} is in train mode"): FeatureExtractor(net, "a", stop=True)(x)
    assert not hooks_on(net)


class Guarded(nn.Module):
    "A model that goes on when its body fails."
    def __init__(self, body, caught):
        super().__init__()
        self.body, self.last, self.caught, self.tidied = body, nn.Linear(2, 2), caught, 0

    def forward(self, x):
        try: y = self.body(x)
        except self.caught: y = torch.zeros(len(x), 2)
        finally: self.tidied += 1
        return self.last(y)


@pytest.mark.parametrize("caught, runs_on", [(Exception, False), (BaseException, True)])
def test_models_that_catch_errors(net, x, caught, runs_on):
    model = Guarded(net, caught).eval()
    reached = []
    model.last.register_forward_hook(lambda m, i, o: reached.append(m))
    expected = FeatureExtractor(net, "a")(x)["a"]
    features = FeatureExtractor(model, ["body.a"], stop=True)(x)
    assert torch.equal(features["body.a"], expected) and list(features) == ["body.a"]
    assert model.tidied == 1 and bool(reached) == runs_on and len(hooks_on(model)) == 1  # the one of this test


def test_nothing_is_taken_after_the_end(net, x):
    class Twice(Guarded):
        def forward(self, x): return super().forward(x) + super().forward(x + 1)
    features = FeatureExtractor(Twice(net, BaseException).eval(), "body.a", stop=True)(x)
    assert list(features) == ["body.a"] and torch.equal(features["body.a"], net.a(x))


def test_extractors_inside_extractors(net, x):
    inner = FeatureExtractor(net, "a", stop=True)
    class Outer(nn.Module):
        def __init__(self): super().__init__(); self.body, self.fc = inner, nn.Linear(4, 1)
        def forward(self, x): return self.fc(self.body(x)["a"])
    outer = Outer().eval()
    assert list(FeatureExtractor(outer, ["body.model.a", "fc"])(x)) == ["body.model.a", "fc"]
    assert list(FeatureExtractor(outer, ["body.model.a"], stop=True)(x)) == ["body.model.a"]  # ends both passes
    assert not hooks_on(outer)


def test_stop_is_no_error_for_other_hooks(net, x):
    seen = []
    net.register_forward_hook(lambda m, i, o: seen.append(o), always_call=True)
    FeatureExtractor(net, "a", stop=True)(x)
    assert not seen


def test_other_hooks_of_ours_work_on(net, x):
    with hook_outputs(net, names=["a", "b"]) as hooks:
        FeatureExtractor(net, "a", stop=True)(x)
        assert hooks["a"].n_calls == 1 and hooks["b"].stored is None
        net(x)
        assert [h.n_calls for h in hooks] == [1, 1]
    assert not hooks_on(net)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("stop", [False, True])
def test_checkpointed_layers(net, x, reentrant, stop):
    model = Checkpointed(net, reentrant).eval()
    out = FeatureExtractor(model, ["net.a", *([] if stop else ["net.relu", ""])], stop=stop)(x.requires_grad_())
    assert list(out) == (["net.a"] if stop else ["net.a", "net.relu", "net.relu#1", ""])
    if not stop: out[""].sum().backward()
    assert torch.equal(out["net.a"], net.a(x)) and not hooks_on(model)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_extractors(net, x, reentrant):
    extract, x = FeatureExtractor(net, "a"), x.requires_grad_()
    (expected,) = torch.autograd.grad(extract(x)["a"].square().sum(), x)
    checkpoint(lambda x: extract(x)["a"], x, use_reentrant=reentrant).square().sum().backward()  # runs the extractor again in here
    assert torch.equal(x.grad, expected)


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_backward_pass_runs_again_is_no_call(net, x, reentrant):
    class Energy(nn.Module):
        "A model whose output is a gradient."
        def __init__(self): super().__init__(); self.net = net
        def forward(self, x):
            checkpoint(self.net, x, use_reentrant=reentrant).sum().backward()
            return x.grad
    assert list(FeatureExtractor(Energy(), ["net.a", ""], detach=True)(x.requires_grad_())) == ["net.a", ""]


# What did not run

@pytest.mark.parametrize("stop", [False, True])
def test_did_not_run(net, x, stop):
    with pytest.raises(RuntimeError, match="^skipped was requested but did not run"): FeatureExtractor(net, ["a", "skipped"], stop=stop)(x)
    with pytest.raises(RuntimeError, match="^relu#2 was requested but did not run in this pass: relu ran 2 times"):
        FeatureExtractor(net, ["relu#2"], stop=stop)(x)
    assert not hooks_on(net)
    extract = FeatureExtractor(net, "*", stop=stop)
    with pytest.warns(HookWarning, match="^skipped: hooked, but never called"): assert "skipped" not in extract(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ResourceWarning)  # of what an earlier test has left to be collected
        extract(x)  # said once


def test_layers_that_only_lend_weights():
    torch.manual_seed(0)
    model = vit_b_16(image_size=32, num_classes=3).eval()
    with pytest.warns(HookWarning, match="out_proj"): features = FeatureExtractor(model, "encoder.layers.encoder_layer_0.*")(torch.randn(1, 3, 32, 32))
    assert "encoder.layers.encoder_layer_0.self_attention" in features


@pytest.mark.parametrize("names, error, text", [
    ("layer", LookupError, "no layer of this Net matches 'layer'"), ("ax*", LookupError, "matches 'ax"), ("reul", LookupError, "it has relu"),
    ([], ValueError, "no layer was requested"), ("relu#x", ValueError, "# is followed by the number"), ("relu#-1", ValueError, "# is followed"),
    ([3], TypeError, "by name, pattern, type or a function"), (nn.Conv2d, LookupError, "Conv2d")])
def test_bad_names(net, names, error, text):
    with pytest.raises(error, match=text): FeatureExtractor(net, names)


def test_bad_models():
    with pytest.raises(TypeError, match="expected a torch.nn.Module, got int"): FeatureExtractor(3, "a")
    with pytest.raises(TypeError, match="a ModuleList has no forward"): FeatureExtractor(nn.Sequential(nn.ModuleList([nn.ReLU()])), "0")
    with pytest.raises(RuntimeError, match="device"): FeatureExtractor(nn.Sequential(nn.ReLU()), "0", to="nowhere")
    with pytest.raises(ValueError, match="to=torch.int8 would cut"): FeatureExtractor(nn.Sequential(nn.ReLU()), "0", to=torch.int8)
    shared = nn.ReLU()
    with pytest.raises(ValueError, match="0 and 1 are the same layer"): FeatureExtractor(nn.Sequential(shared, shared), ["0", "1"])


def test_repr(net):
    assert repr(FeatureExtractor(net, ["a", "relu#1", ""], stop=True, to=("cpu", torch.float16))) == \
        "FeatureExtractor of Net: a, relu#1, the output, stop=True, to=cpu, to=torch.float16"


# Compiled and wrapped models

@pytest.mark.parametrize(
    "backend", ["eager", *(pytest.param(name, marks=pytest.mark.slow) for name in ("aot_eager", "inductor"))])
@pytest.mark.parametrize("where", one_in(2, ["extractor", "before", "in place", "after"]))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled(x, backend, where):
    torch._dynamo.reset()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    compiled = torch.compile(net, backend=backend)
    if where == "in place":
        net.compile(backend=backend)
        compiled = net
    if where == "after": compiled(x)
    for options in ({}, {"stop": True}, {"detach": True}):
        extract = FeatureExtractor(net if where == "extractor" else compiled, ["0", "1"], **options)
        call = torch.compile(extract, backend=backend) if where == "extractor" else extract
        for i in range(3):
            out = call(x + i)
            assert list(out) == ["0", "1"] and not hooks_on(net)
            torch.testing.assert_close(out["1"], torch.relu(nn.functional.linear(x + i, net[0].weight, net[0].bias)))
    torch.testing.assert_close(compiled(x), net[2](net[1](net[0](x))))


def test_compiled_once(x):
    "Hooks that come and go do not make torch compile the model again and again."
    torch._dynamo.reset()
    graphs = []
    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    compiled = torch.compile(net, backend=backend)
    extract = FeatureExtractor(compiled, ["0", "2"])
    for _ in range(2):
        compiled(x)
        extract(x)
    n = len(graphs)
    for _ in range(20):
        compiled(x)
        extract(x)
    assert len(graphs) == n


@pytest.fixture
def one_process(tmp_path):
    dist = torch.distributed
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_data_parallel(net, x, one_process):
    net.skipped.requires_grad_(False)
    wrapped = nn.parallel.DistributedDataParallel(net)
    features = FeatureExtractor(wrapped, ["a", "relu#1"])(x)
    assert list(features) == ["a", "relu#1"] and torch.equal(features["a"], net.a(x))
    assert list(FeatureExtractor(wrapped, "a", stop=True)(x)) == ["a"]
    wrapped(x).sum().backward()
    assert net.a.weight.grad is not None


def test_sharded(net, x, one_process):
    from torch.distributed.fsdp import fully_shard
    expected = net.a(x).detach()
    fully_shard(net.a, mesh=torch.distributed.init_device_mesh("cpu", (1,)))
    fully_shard(net, mesh=torch.distributed.init_device_mesh("cpu", (1,)))
    assert torch.equal(FeatureExtractor(net, "a", detach=True)(x)["a"], expected)
    with pytest.raises(RuntimeError, match="does not work with FSDP"): FeatureExtractor(net, "a", stop=True)(x)


@pytest.mark.gpu
def test_on_a_gpu(net, x):
    net, x = net.cuda(), x.cuda()
    torch.cuda.set_sync_debug_mode("error")
    try: features = FeatureExtractor(net, ["a", "b"], detach=True)(x)
    finally: torch.cuda.set_sync_debug_mode("default")
    assert features["a"].is_cuda and not FeatureExtractor(net, "a", to="cpu")(x)["a"].is_cuda


# Inside of transforms

class Maps(nn.Module):
    "Maps a layer over the rows of what it gets."
    def __init__(self):
        super().__init__()
        self.inside = nn.Linear(4, 4)
    def forward(self, x): return torch.vmap(lambda row: self.inside(row).relu_())(x)


@pytest.mark.parametrize("options", [{}, {"detach": True}, {"to": torch.float64, "detach": True}])
def test_features_belong_to_the_transform_of_the_caller(options):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)), torch.randn(3, 4)
    wanted = ["0", "2"] if options else ["1", "2"]
    extract = FeatureExtractor(model, wanted, **options)
    found, right = torch.vmap(extract)(x), extract(x)
    summed = torch.func.grad(lambda x: (sum(t.sum() for t in extract(x).values()), extract(x)), has_aux=True)(x)[1]
    for name in wanted:
        assert found[name].shape == summed[name].shape == right[name].shape
        torch.testing.assert_close(found[name], right[name])
        torch.testing.assert_close(summed[name], right[name])


def test_features_from_a_transform_in_the_model_are_what_it_was_called_with():
    model, x = nn.Sequential(Maps(), nn.Linear(4, 2)), torch.randn(3, 4)
    found = FeatureExtractor(model, ["0.inside", "1"], detach=True)(x)
    torch.testing.assert_close(found["0.inside"], model[0].inside(x).detach())
    twice = torch.vmap(FeatureExtractor(model, ["0.inside", "1"], detach=True))(x[None])
    torch.testing.assert_close(twice["0.inside"], found["0.inside"][None])
