"""Checks the cases on which `hl.compare` is tried.

    python -m tests.bench.compare_check [part of a kind or name …]

A planted fault must matter in float64, and its answer must be right. Of a pair that is equal but for arithmetic, the
outputs agree in float64 to 1e-9 (root mean square, relative), to 2e-6 where weights were folded in float32, and to 50
times the last bit where one side runs in low precision; and the partners that are known are layers that are called."""
import contextlib
import copy
import math
import sys
import time
import warnings
from collections import Counter

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from tests.bench.compare_cases import Case, arithmetic, faults, ports
from tests.bench.compare_peers import tensors


class Doubled(TorchFunctionMode):
    "Whoever asks for one of these dtypes gets float64, so that models that cast inside compute in it as well."
    casts = {torch.Tensor.float: torch.float32, torch.Tensor.half: torch.float16, torch.Tensor.bfloat16: torch.bfloat16}

    def __init__(self, *small: torch.dtype):
        super().__init__()
        self.small = small

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if self.casts.get(function) in self.small: return args[0].double()
        def widen(x): return torch.float64 if isinstance(x, torch.dtype) and x in self.small else x
        return function(*map(widen, args), **{name: widen(x) for name, x in (kwargs or {}).items()})


def doubled(inputs):
    return tree_map(lambda x: x.double() if torch.is_tensor(x) and x.is_floating_point() else x, inputs)


def run(model, args, kwargs) -> list[torch.Tensor]:
    "The tensors that a model returns, from one random state."
    args, kwargs = copy.deepcopy((args, kwargs))
    with torch.random.fork_rng(devices=[]), contextlib.nullcontext() if model.training else torch.no_grad():
        torch.manual_seed(3)
        return tensors(model(*args, **kwargs))


# Faults

def numbers(model, args, kwargs, wide: bool = True) -> list[torch.Tensor]:
    "The real numbers that a model or a layer returns, computed in float64 if `wide`."
    if wide: model, (args, kwargs) = model.double(), doubled((args, kwargs))
    with torch.no_grad(), Doubled(torch.float32) if wide else contextlib.nullcontext():
        return [t.double() for t in run(model, args, kwargs) if t.is_floating_point()]


def size(value: torch.Tensor) -> float: return value.square().mean().sqrt().item()


def matters(reference, candidate, args, kwargs) -> tuple[float, float]:
    "How far the candidate's output lies from the reference's in float64, and how many times what float32 does to that."
    narrow = numbers(reference, args, kwargs, wide=False)
    wide, other = numbers(reference, args, kwargs), numbers(candidate, args, kwargs)
    if [t.shape for t in wide] != [t.shape for t in other]: return math.inf, math.inf
    if not all(t.isfinite().all() for t in other): return math.inf, math.inf
    changes = [(size(b - a)/size(a), size(b - a)/max(size(c - a), 1e-300)) for a, b, c in zip(wide, other, narrow)]
    return max(changes, key=lambda change: min(change[0]/1e-6, change[1]/30))


@torch.no_grad()
def first_wrong(reference, candidate, args, kwargs) -> str | None:
    "The first layer to finish that, given in float64 what the reference gave it, returns something else."
    calls, handles = [], []

    def enters(layer, args, kwargs): layer.given = [*getattr(layer, "given", []), copy.deepcopy((args, kwargs))]

    for name, layer in reference.named_modules():
        def leaves(layer, inputs, out, name=name):
            found = [t.double() for t in tensors(out) if t.is_floating_point()]
            calls.append((name, *layer.given.pop(), copy.deepcopy(found)))
        handles.append(layer.register_forward_pre_hook(enters, with_kwargs=True))
        handles.append(layer.register_forward_hook(leaves))
    numbers(reference, args, kwargs)
    for handle in handles: handle.remove()
    candidate.double()
    there = dict(candidate.named_modules(remove_duplicate=False))
    for name, args, kwargs, expected in calls:
        if name not in there: continue
        found = numbers(there[name], args, kwargs)
        if [t.shape for t in found] != [t.shape for t in expected]: return name
        if not all(size(a - b) <= 1e-11*size(b) for a, b in zip(found, expected)): return name


def check_fault(fault: Case) -> tuple[str, list[str]]:
    "How much a fault changes, and why it does not count."
    *made, answer = fault.make()
    change, ratio = matters(*made)
    shown = f"{change:.1e}, {ratio:.3g} times what float32 does"
    if not (change >= 1e-6 and ratio >= 30): return shown, ["too weak"]
    found = first_wrong(*made)
    return shown, [] if found in answer else [f"the first wrong layer is {found!r}, and not in {answer}"]


# Equal pairs

def apart(a, b) -> float:
    "The difference, root mean square, relative to the first; infinite if NaN or infinities are elsewhere."
    if a.shape != b.shape: return math.inf
    kind = torch.complex128 if a.is_complex() else torch.float64
    a, b = a.to(kind), b.to(kind)
    finite = a.isfinite()
    if not torch.equal(finite, b.isfinite()) or not torch.equal(a[~finite].nan_to_num(7), b[~finite].nan_to_num(7)):
        return math.inf
    if not finite.any(): return 0.
    return ((a - b)[finite].abs().square().mean().sqrt()/a[finite].abs().square().mean().sqrt().clamp(min=1e-30)).item()


def widened(model):
    "All in float64, complex numbers too."
    model.double()
    for m in model.modules():
        for name, p in m.named_parameters(recurse=False):
            if p.is_complex(): setattr(m, name, nn.Parameter(p.to(torch.complex128)))
    return model


def difference(equal: Case) -> float:
    "How far the outputs of a pair are apart, in float64 where the pair is not about low precision."
    a, b, args, kwargs, _ = equal.make()
    if equal.within > 1e-3: return max(apart(x, y) for x, y in zip(run(a, args, kwargs), run(b, args, kwargs)))
    args, kwargs = doubled((args, kwargs))
    small = () if equal.kind == "compiled" else (torch.float32, torch.float16, torch.bfloat16)
    try:
        torch.set_default_dtype(torch.float64)
        with Doubled(*small) if small else contextlib.nullcontext():
            one, two = (run(widened(m), args, kwargs) for m in (a, b))
    finally: torch.set_default_dtype(torch.float32)
    assert one and two, "no output"
    return max(apart(x, y) for x, y in zip(one, two))


def wrong_names(equal: Case) -> list[str]:
    "What in the pairing is no layer of its model, or is never called and yet said to have a partner."
    a, b, args, kwargs, pairing = equal.make()
    ran, problems = (set(), set()), []
    for model, names in zip((a, b), ran):
        handles = [m.register_forward_hook(lambda m, i, o, name=name, names=names: names.add(name))
                   for name, m in model.named_modules(remove_duplicate=False)]
        run(model, args, kwargs)
        for handle in handles: handle.remove()
    known = {x for x, _ in b.named_modules(remove_duplicate=False)}
    for name, partners in (pairing or {}).items():
        if name not in ran[0]: problems.append(f"{name} is not called in the reference")
        if partners - {None} - known: problems.append(f"{name}: {partners} are no layers of the candidate")
        if None not in partners and not partners & ran[1]:
            problems.append(f"{name}: none of {partners} is called in the candidate")
    return problems


def check_equal(equal: Case) -> tuple[str, list[str]]:
    found = difference(equal)
    problems = wrong_names(equal) if equal.kind != "compiled" else []
    if not found <= equal.within: problems.append(f"not within {equal.within:.0e}")
    return f"{found:.1e} apart", problems


def main(*parts: str) -> int:
    "Prints what is wrong, and each case where only a part is asked for; returns how many are wrong."
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    start, bad, kinds = time.perf_counter(), 0, Counter()
    for check, cases in ((check_fault, faults), (check_equal, [*arithmetic, *ports])):
        for case in cases:
            title = f"{case.kind}: {case.name}"
            if parts and not any(part in title for part in parts): continue
            try: shown, problems = check(case)
            except Exception as error: shown, problems = "", [f"{type(error).__name__}: {str(error)[:300]}"]
            kinds[case.kind] += 1
            bad += bool(problems)
            if problems or parts: print(f"{title}: {shown}", *problems, sep="\n    ", flush=True)
    for kind, n in kinds.items(): print(f"{n:4} {kind}")
    print(f"{kinds.total()} cases, {bad} not as said, {time.perf_counter() - start:.0f} s")
    return bad


if __name__ == "__main__": sys.exit(bool(main(*sys.argv[1:])))
