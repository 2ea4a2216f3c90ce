"""A model with hooks on all of its layers: nothing changes, nothing is left, and what the hooks see is right."""
import warnings

from torch import Tensor

import hooklab as hl
from hooklab.hooks.tree import map_tensors
from support.traces import buffers, difference, ours, run, same


def watched(model, inputs, start, forward=None):
    "A run with hooks on all layers: the run, what was seen of each call, forward and backward, and what was warned about."
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with hl.Hooks(model, whole, names="*", with_kwargs=True) as seen, \
             hl.Hooks(model, whole, kind="backward", names="*", with_kwargs=True) as shares:
            result = run(model, inputs, start, forward)
            calls, gradients = {h.name: h.calls for h in seen}, {h.name: h.calls for h in shares}
            assert all(len(h.calls) == h.n_calls for h in [*seen, *shares])
    return result, calls, gradients, said


def check_untouched(model, inputs, forward=None):
    "Run `model` with and without hooks on all layers, and compare everything, with torch's own hooks too; the gradients seen."
    start, names = buffers(model), list(model.state_dict())
    plain = run(model, inputs, start, forward)
    with torch_sees(model) as expected: run(model, inputs, start, forward)
    hooked, calls, gradients, said = watched(model, inputs, start, forward)
    assert difference(plain, hooked) == []
    assert list(model.state_dict()) == names and ours(model) == []
    assert never_called(said) == {name for name in calls if not expected[name]}
    for name in calls: assert same_calls(calls[name], expected[name]), name
    return gradients


def same_calls(a, b) -> bool:
    return len(a) == len(b) and all(len(p) == len(q) and all(map(same, p, q)) for p, q in zip(map(hl.tensors, a), map(hl.tensors, b)))


def whole(m, *given): return given


def never_called(said) -> set[str]:
    "The names in our warnings about layers that did not run; there must be no other warning of ours but of missing gradients."
    said = [str(w.message) for w in said if issubclass(w.category, hl.HookWarning)]
    reasons = [part for message in said for part in message.split("; ")]
    known = "never called", "no gradient reached it", "holds no tensor that can be found"
    assert all(any(words in r for words in known) for r in reasons), reasons
    return {name for r in reasons if "never called" in r for name in r.split(": ")[0].split(", ")}


class torch_sees:
    "What raw torch hooks see of each call: copies of inputs and output."
    def __init__(self, model): self.named = hl.layers(model)
    def __enter__(self):
        self.calls, self.handles = {name: [] for name in self.named}, []
        def look(name): return lambda m, *given: self.calls[name].append(map_tensors(lambda t: t.detach().clone(), given))
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
    if not hl.tensors(x): return None
    return [places(part, found) for part in (x.values() if isinstance(x, dict) else x)]


def shares_by_copies(model, inputs, start, forward=None) -> dict[str, list]:
    "For each layer and call the gradients of inputs and outputs; None for a call that returned an input as it was."
    calls, handles = {}, []
    for name, m in hl.layers(model).items():
        def enter(m, args, kwargs, name=name):
            copies, found = {}, {}
            args, kwargs = copied((args, kwargs), copies)
            calls.setdefault(name, []).append({"in": [places(x, found) for x in [*args, *kwargs.values()]], "copies": copies})
            return args, kwargs
        def leave(m, args, kwargs, out, name=name):
            call = next(call for call in reversed(calls[name]) if "copies" in call)
            originals = {id(copy): t for t, copy in call.pop("copies").values() if copy._version == 0}
            call["returned"] = any(id(t) in originals for t in hl.tensors(out))
            if call["returned"]: out = map_tensors(lambda t: originals.get(id(t), t), out)
            call["out"] = [place for x in (out if isinstance(out, tuple) else [out]) for place in leaves(places(x, {})) if place]
            return out
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
            # of the output only tensors that have gradients: an output of transformers leaves out what is None
            wanted, found = leaves(call["in"]), leaves([args, kwargs])
            wanted += [place for place in call["out"] if place.gradient is not None]
            found += [g for g in leaves(out) if g is not None]
            for i, (place, g) in enumerate(zip(wanted, found, strict=True)):
                if not isinstance(place, Place): continue
                if (place.gradient is None) != (g is None): wrong.append(f"{name}, {i}: {'none' if g is None else 'one'} seen")
                elif g is not None and (place.gradient - g).abs().max() > 1e-4*place.gradient.abs().max(): wrong.append(f"{name}, {i}")
                else: compared += g is not None
    assert wrong == []
    return compared
