"""What others use to find where two models part, as functions of (reference, candidate, args, kwargs) to (same, first).

`same` is None where the tool has no answer, `first` is the name of a layer of the reference, or None."""
import contextlib
import copy
import dataclasses
from functools import partial

import torch
from torch.utils._debug_mode import DebugMode, norm_hash_fn


def tensors(x):
    "The tensors of an output, in order."
    if torch.is_tensor(x): return [x]
    if isinstance(x, dict): return [t for v in x.values() for t in tensors(v)]
    if isinstance(x, tuple | list): return [t for v in x for t in tensors(v)]
    if dataclasses.is_dataclass(x):
        return [t for field in dataclasses.fields(x) for t in tensors(getattr(x, field.name))]
    return []


@contextlib.contextmanager
def same_start(models):
    "Puts random state and buffers of the models back at the end; what it gives sets the random state for one of them."
    state, buffers = torch.get_rng_state(), [(b, b.clone()) for m in models for b in m.buffers()]
    try: yield lambda: torch.set_rng_state(state)
    finally:
        torch.set_rng_state(state)
        with torch.no_grad():
            for b, value in buffers: b.copy_(value)


def close(a, b) -> bool:
    "As a script would ask it, after a cast to the dtype of the reference."
    if a.shape != b.shape: return False
    return torch.allclose(a, b.to(a.dtype), rtol=1e-4, atol=1e-5, equal_nan=True)


def allclose(reference, candidate, args, kwargs):
    "Forward hooks on all layers without children, and on the model; outputs are paired by name and number of the call."
    seen = [], []
    def watch(model, outputs):
        calls = {}
        def keep(name):
            def hook(module, inputs, output):
                calls[name] = calls.get(name, -1) + 1
                outputs.append(((name, calls[name]), [t.detach().clone() for t in tensors(output)]))
            return hook
        return [m.register_forward_hook(keep(name)) for name,
                m in model.named_modules() if not name or not any(m.children())]
    with same_start([reference, candidate]) as begin:
        for model, outputs in zip((reference, candidate), seen):
            begin()
            handles = watch(model, outputs)
            try: model(*copy.deepcopy(args), **copy.deepcopy(kwargs))
            finally:
                for handle in handles: handle.remove()
    there = dict(seen[1])
    for (name, call), mine in seen[0]:
        theirs = there.get((name, call))
        if theirs is None: continue
        if len(mine) != len(theirs) or not all(map(close, mine, theirs)): return False, name
    return True, None


def debug_mode(reference, candidate, args, kwargs, tolerance=0.):
    """torch's DebugMode with hashes of the outputs of all operations: where the first differs beyond tolerance.

    It has no answer where the two runs do not call the same operations, or where it fails. Its hash is the sum of
    absolute values. Hooks tell which layer called an operation: for its own record of layers, another name is another
    structure."""
    logs, owners = [], []
    with same_start([reference, candidate]) as begin:
        for model in (reference, candidate):
            begin()
            inner_args, inner_kwargs = copy.deepcopy((args, kwargs))
            names, stack, owner, mode = {m: name for name, m in model.named_modules()}, [], {}, DebugMode()

            def enter(module, inputs, names=names, stack=stack): stack.append(names[module])
            def leave(module, inputs, output, stack=stack): stack.pop()
            def hashed(t, mode=mode, owner=owner, stack=stack):
                owner[len(mode.operators) - 1] = stack[-1] if stack else ""
                return norm_hash_fn(t, use_scalar=True)

            handles = [m.register_forward_pre_hook(enter) for m in names]
            handles += [m.register_forward_hook(leave, always_call=True) for m in names]
            try:
                with mode, DebugMode.log_tensor_hashes(hash_fn=hashed): model(*inner_args, **inner_kwargs)
            finally:
                for handle in handles: handle.remove()
            logs.append(mode.logs)
            owners.append(owner)
    try: differences = DebugMode.check_hash_mismatches(*logs)
    except ValueError: return None, None
    if not any(beyond(d, tolerance) for d in differences): return True, None
    for i, (a, b) in enumerate(zip(*logs)):
        if any(beyond(d, tolerance) for d in DebugMode.check_hash_mismatches([a], [b])):
            return False, owners[0].get(i, "")


def beyond(difference, tolerance) -> bool:
    "Is a mismatch larger than the tolerance? NaN is, as it is for DebugMode itself."
    return tolerance == 0 or not difference["rel_diff"] <= tolerance


peers = {"allclose by name": allclose, "DebugMode": debug_mode, "DebugMode, 1e-4": partial(debug_mode, tolerance=1e-4)}
