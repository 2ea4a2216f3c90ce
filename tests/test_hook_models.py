"""Every layer of many models, hooked forward and backward: nothing changes, nothing is left, and what is seen is right."""
import warnings
from collections import Counter

import pytest
import torch
import torchvision
from torch import Tensor, nn

import hooklab as hl
from traces import buffers, difference, loss, ours, run, same

LIMIT = 290_000_000  # parameters: with the gradients of two runs, more would not fit in 4 GB


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def check_untouched(model, inputs, forward=None):
    "Run `model` with and without hooks on all layers, and compare everything, with torch's own hooks too."
    start, names = buffers(model), list(model.state_dict())
    plain = run(model, inputs, start, forward)
    with torch_sees(model) as calls: run(model, inputs, start, forward)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with hl.Hooks(model, whole, names="*", with_kwargs=True) as seen, \
             hl.Hooks(model, whole, kind="backward", names="*", with_kwargs=True) as shares:
            hooked = run(model, inputs, start, forward)
            counts, gradients = {h.name: h.n_calls for h in seen}, {h.name: h.calls for h in shares}
            outputs = {h.name: h.stored[-1] for h in seen if h.n_calls}
    assert difference(plain, hooked) == []
    assert list(model.state_dict()) == names and ours(model) == []
    assert counts == {name: len(calls[name]) for name in counts}
    assert never_called(said) == {name for name, n in counts.items() if not n}
    for name, stored in outputs.items():
        wanted = [t for t in hl.tensors(calls[name][-1][-1])]
        assert len(wanted) == len(hl.tensors(stored)) and all(map(same, wanted, hl.tensors(stored))), name
    return gradients


def whole(m, *given): return given


def never_called(said) -> set[str]:
    "The names in our warnings about layers that did not run; there must be no other warning of ours but of missing gradients."
    said = [str(w.message) for w in said if issubclass(w.category, hl.HookWarning)]
    reasons = [part for message in said for part in message.split("; ")]
    assert all("never called" in r or "no gradient reached it" in r for r in reasons), reasons
    return {name for r in reasons if "never called" in r for name in r.split(": ")[0].split(", ")}


class torch_sees:
    "What raw torch hooks see of each call: copies of inputs and output."
    def __init__(self, model): self.named = hl.layers(model)
    def __enter__(self):
        self.calls, self.handles = {name: [] for name in self.named}, []
        def look(name): return lambda m, *given: self.calls[name].append(hl.map_tensors(lambda t: t.detach().clone(), given))
        for name, m in self.named.items(): self.handles.append(m.register_forward_hook(look(name), with_kwargs=True))
        return self.calls
    def __exit__(self, *_):
        for handle in self.handles: handle.remove()


# --- gradients, found in another way: the layer gets copies of its inputs, and hooks on these tensors see the layer's share
class Place:
    "Stands for a tensor; gets its gradient."
    gradient, is_input = None, None
    def __init__(self, t: Tensor):
        if t.requires_grad: t.register_hook(lambda g: setattr(self, "gradient", g.clone()))


def copied(x, copies):
    "The same containers with copies of tensors: one copy where a tensor is passed twice, as a layer may ask whether it was."
    if isinstance(x, Tensor): return copies.setdefault(id(x), (x, x.clone()))[1] if x.requires_grad else x
    if type(x) in (tuple, list): return type(x)(copied(part, copies) for part in x)
    if type(x) is dict: return {name: copied(part, copies) for name, part in x.items()}
    return x


def places(x, found):
    if isinstance(x, Tensor): return found.setdefault(id(x), (x, Place(x)))[1]
    if isinstance(x, tuple | list): return [places(part, found) for part in x]
    if isinstance(x, dict): return [places(part, found) for part in x.values()]
    return None


def shares_by_copies(model, inputs, start, forward=None) -> dict[str, list]:
    "For each layer and call the gradients of inputs and outputs; None for a call that returned an input as it was."
    calls, handles = {}, []
    for name, m in hl.layers(model).items():
        def enter(m, args, kwargs, name=name):
            args, kwargs = copied((args, kwargs), {})
            given = hl.tensors((args, kwargs))
            call = {"in": places((args, kwargs), {}), "given": given, "versions": [t._version for t in given]}
            calls.setdefault(name, []).append(call)
            return args, kwargs
        def leave(m, args, kwargs, out, name=name):
            call = next(call for call in reversed(calls[name]) if "given" in call)
            before = {id(t): v for t, v in zip(call.pop("given"), call.pop("versions"))}
            call["returned"] = any(before.get(id(t)) == t._version for t in hl.tensors(out) if t.requires_grad)
            call["out"] = places(out if isinstance(out, tuple) else (out,), {})
        handles += [m.register_forward_pre_hook(enter, with_kwargs=True), m.register_forward_hook(leave, with_kwargs=True)]
    try: run(model, inputs, start, forward)
    finally:
        for handle in handles: handle.remove()
    return calls


def leaves(x) -> list:
    "Everything that is not a container, None included."
    if isinstance(x, tuple | list): return [leaf for part in x for leaf in leaves(part)]
    if isinstance(x, dict): return [leaf for part in x.values() for leaf in leaves(part)]
    return [x]


def check_gradients(model, inputs, gradients, start, forward=None) -> int:
    "Compare what our hooks saw in `gradients` with what copies show; how many gradients were compared."
    compared, wrong = 0, []
    for name, calls in shares_by_copies(model, inputs, start, forward).items():
        calls = [call for call in calls if any(p and p.gradient is not None for p in leaves(call["out"]))]
        if len(calls) != len(gradients[name]): wrong.append(f"{name}: {len(gradients[name])} calls of {len(calls)}")
        for call, (args, kwargs, out) in zip(calls, gradients[name]):
            if call["returned"]: continue
            wanted, found = leaves([call["in"], call["out"]]), leaves([args, kwargs, out])
            for i, (place, g) in enumerate(zip(wanted, found, strict=True)):
                if not isinstance(place, Place): continue
                if (place.gradient is None) != (g is None): wrong.append(f"{name}, {i}: {'none' if g is None else 'one'} seen")
                elif g is not None and (place.gradient - g).abs().max() > 1e-5*place.gradient.abs().max(): wrong.append(f"{name}, {i}")
                else: compared += g is not None
    assert wrong == []
    return compared


# --- torchvision
def vision_model(name, device="cpu"):
    options = {"num_classes": 5}
    if name.startswith("vit_"): options["image_size"] = 2*int(name.split("_")[-1])
    if name in ("googlenet", "inception_v3"): options["init_weights"] = False
    size = options.get("image_size", 224 if name.startswith("maxvit") else 299 if name == "inception_v3" else 224 if name == "googlenet" else 64)
    torch.manual_seed(0)
    with torch.device(device):
        model = torchvision.models.get_model(name, **options)
        return model, {"x": torch.randn(1 if name.startswith("maxvit") else 2, 3, size, size, requires_grad=True)}


def check_vision_model(name):
    with torch.device("meta"): n = sum(p.numel() for p in torchvision.models.get_model(name).parameters())
    model, inputs = vision_model(name, "meta" if n > LIMIT else "cpu")
    forward = lambda model, inputs: model(inputs["x"])
    gradients = check_untouched(model, inputs, forward)
    if n <= LIMIT: assert check_gradients(model, inputs, gradients, buffers(model), forward) > 2*len(gradients)/3


SOME = ["resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "efficientnet_b0"]


@pytest.mark.parametrize("name", SOME)
def test_some_vision_models(name): check_vision_model(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in torchvision.models.list_models(module=torchvision.models) if n not in SOME])
def test_vision_models(name): check_vision_model(name)
