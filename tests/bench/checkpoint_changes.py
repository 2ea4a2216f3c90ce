"""Changes between two state dicts, and what must be said of them in plain data.

A kind of change is a function of (state, generator) that returns (a, b, truth), or None for a state without a tensor
for it. The truth has, for each tensor that is not simply equal, the relations that are right; the numbers that go with
them; words of which a verdict on the whole must have one; and words that it must not have.

    for net, kind, a, b, truth in changes(): ..."""
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tests.bench.checkpoint_cases import State, generator_of, noise, state_of
from tests.bench.checkpoint_nets import NETS

RELATIONS = {"equal", "rounded", "scaled", "transposed", "permuted", "changed", "only in a", "only in b", "zeros",
             "not finite"}


@dataclass
class Changed:
    "What must be said. A tensor that is not in `rows` must be equal."
    rows: dict[str, set[str]]                                  # the relations that are right, by the name of the tensor
    numbers: dict[str, float | str] = field(default_factory=dict)  # a factor, or the name of a dtype
    verdict: tuple[str, ...] = ()                              # one of these is in the verdict; empty: nothing is asked
    never: tuple[str, ...] = ()                                # none of these is


Change = Callable[[State, torch.Generator], tuple[State, State, Changed] | None]
CHANGES: dict[str, Change] = {}


def change(name: str):
    def enter(f):
        CHANGES[name] = f
        return f
    return enter


NOTHING, TWICE = ("nothing", "no change", "no effect"), ("twice", "two times", "2 times")
ITSELF = "itself", "equal", "same", "identical"


def floats(state: State) -> list[str]: return [name for name, t in state.items() if t.is_floating_point() and t.numel()]


def long(state: State) -> list[str]: return [name for name in floats(state) if state[name].numel() > 4]


def pick(names: list, g: torch.Generator):
    return names[int(torch.randint(len(names), (), generator=g))] if names else None


def matrices(state: State, square: bool | None = None) -> list[str]:
    "Matrices that are large enough for a permutation to be found."
    return [name for name in floats(state) if state[name].ndim == 2 and min(state[name].shape) > 7
            and square in (None, state[name].shape[0] == state[name].shape[1])]


def with_one(state: State, name: str | None, new: Callable[[Tensor], Tensor], relation: str, number=None):
    "One tensor becomes `new` of it."
    if name is None: return None
    numbers = {} if number is None else {name: number}
    return state, state | {name: new(state[name]).contiguous()}, Changed({name: {relation}}, numbers)


@change("equal")
def equal(state, g): return state, {name: t.clone() for name, t in state.items()}, Changed({}, verdict=ITSELF)


def rounding(state: State, dtype: torch.dtype, back: bool):
    b = {name: t.to(dtype) if t.is_floating_point() else t for name, t in state.items()}
    rows = {}
    for name in floats(state):  # a number such as 1 is as it was
        rows[name] = {"equal", "rounded"} if torch.equal(b[name].float(), state[name].float()) else {"rounded"}
    if back: b = {name: t.to(state[name].dtype) for name, t in b.items()}
    numbers = {name: str(dtype).removeprefix("torch.") for name, right in rows.items() if right == {"rounded"}}
    return state, b, Changed(rows, numbers)


@change("kept as bfloat16")
def bfloat16(state, g): return rounding(state, torch.bfloat16, False)


@change("rounded to bfloat16 and back")
def bfloat16_and_back(state, g): return rounding(state, torch.bfloat16, True)


@change("rounded to float16 and back")
def float16_and_back(state, g): return rounding(state, torch.float16, True)


@change("quantized to int8 and back")
def int8(state, g):
    b, rows = dict(state), {}
    for name in matrices(state):
        step = state[name].abs().amax(1, keepdim=True)/127
        b[name] = (state[name]/step).round()*step
        rows[name] = {"rounded", "changed"}
    return (state, b, Changed(rows)) if rows else None


@change("one tensor times a factor")
def scaled(state, g):
    name = pick(long(state), g)
    factor = pick([.5, 1.7, 3., .125, -1.], g)
    return with_one(state, name, lambda t: t*factor, "scaled", factor)


@change("all tensors times a factor")
def all_scaled(state, g):
    names = long(state)
    b = state | {name: state[name]*.7 for name in names}
    return state, b, Changed({name: {"scaled"} for name in names}, dict.fromkeys(names, .7))


@change("a square matrix transposed")
def transposed_square(state, g): return with_one(state, pick(matrices(state, True), g), lambda t: t.T, "transposed")


@change("a matrix transposed")
def transposed(state, g): return with_one(state, pick(matrices(state, False), g), lambda t: t.T, "transposed")


@change("rows in another order")
def rows_permuted(state, g):
    return with_one(state, pick(matrices(state), g), lambda t: t[torch.randperm(len(t), generator=g)], "permuted")


@change("columns in another order")
def columns_permuted(state, g):
    def new(t): return t[:, torch.randperm(t.shape[1], generator=g)]
    return with_one(state, pick(matrices(state), g), new, "permuted")


@change("a layer initialized anew")
def anew(state, g):
    layer = pick([name.removesuffix(".weight") for name in floats(state) if name.endswith(".weight")
                  and state[name].ndim > 1], g)
    names = [name for name in floats(state) if name.rpartition(".")[0] == layer]
    b = state | {name: noise(state[name], g, .05) for name in names}
    return state, b, Changed({name: {"changed"} for name in names})


@change("fine-tuned everywhere")
def tuned(state, g):
    b = state | {name: state[name] + noise(state[name], g, 1e-3)*state[name].abs().mean() for name in floats(state)}
    return state, b, Changed({name: {"changed"} for name in floats(state)}, never=NOTHING)


@change("frozen but for the head")
def frozen(state, g):
    last = [name for name in floats(state) if state[name].ndim > 1][-1].rpartition(".")[0]
    names = [name for name in floats(state) if name.rpartition(".")[0] == last]
    b = state | {name: state[name] + noise(state[name], g, .01) for name in names}
    return state, b, Changed({name: {"changed"} for name in names})


@change("only the statistics of norms differ")
def statistics(state, g):
    names = [name for name in floats(state) if "running_" in name]
    b = state | {name: state[name]*.9 + noise(state[name], g).abs()*.01 for name in names}
    return (state, b, Changed({name: {"changed"} for name in names})) if names else None


def adapters(state: State, g: torch.Generator, zero: bool = False) -> tuple[State, State]:
    "Two matrices of rank 4 for a third of the matrices, and what they add; their scale is one."
    factors, added = {}, {}
    for name in matrices(state)[::3]:
        rows, columns = state[name].shape
        first = torch.randn(4, columns, generator=g)*columns**-.5
        second = torch.zeros(rows, 4) if zero else torch.randn(rows, 4, generator=g)*.02
        layer = name.removesuffix(".weight")
        factors |= {f"{layer}.lora_A.weight": first, f"{layer}.lora_B.weight": second}
        added[name] = second @ first
    return factors, added


def new_entries(entries: State, zero: bool = False) -> dict[str, set[str]]:
    "They are only in b; that they are zeros may be said in its place."
    return {name: {"only in b", "zeros"} if zero and "lora_B" in name else {"only in b"} for name in entries}


@change("an adapter that adds nothing")
def idle_adapter(state, g):
    factors, _ = adapters(state, g, zero=True)
    return (state, state | factors, Changed(new_entries(factors, True), verdict=NOTHING)) if factors else None


@change("an adapter that adds something")
def adapter(state, g):
    factors, _ = adapters(state, g)
    return (state, state | factors, Changed(new_entries(factors), never=NOTHING)) if factors else None


def merged(state: State, g: torch.Generator, times: int, left: bool, verdict: tuple, never: tuple):
    "a has the adapter beside its weights; in b they are merged, `times` times, and the adapter is `left` in or not."
    factors, added = adapters(state, g)
    if not factors: return None
    b = state | {name: state[name] + times*more for name, more in added.items()} | (factors if left else {})
    rows = {name: {"changed"} for name in added} | ({} if left else {name: {"only in a"} for name in factors})
    return state | factors, b, Changed(rows, {}, verdict, never)


@change("an adapter merged once")
def merged_once(state, g): return merged(state, g, 1, False, ("merged", "adapter"), TWICE)


@change("an adapter merged twice")
def merged_twice(state, g): return merged(state, g, 2, False, TWICE, ())


@change("an adapter merged and left in")
def merged_and_left(state, g): return merged(state, g, 1, True, (*TWICE, "merged"), ())


@change("an average that is the model itself")
def idle_average(state, g):
    b = {"module." + name: t.clone() for name, t in state.items()} | {"n_averaged": torch.tensor(50)}
    return state, b, Changed({"n_averaged": {"only in b"}}, verdict=ITSELF)


@change("an average that lags")
def average(state, g):
    b = {"module." + name: t + noise(t, g, 1e-3) if t.is_floating_point() else t for name, t in state.items()}
    rows = {name: {"changed"} for name in floats(state)} | {"n_averaged": {"only in b"}}
    return state, b | {"n_averaged": torch.tensor(50)}, Changed(rows, never=("itself", "identical"))


@change("a tensor of zeros")
def zeroed(state, g):
    return with_one(state, pick(long(state), g), torch.zeros_like, "zeros")


@change("a NaN")
def not_finite(state, g):
    def new(t):
        t = t.clone()
        t.view(-1)[t.numel()//2] = torch.nan
        return t
    return with_one(state, pick(long(state), g), new, "not finite")


@change("an infinity on both sides")
def infinite(state, g):
    name = pick(long(state), g)
    t = state[name].clone()
    t.view(-1)[0] = torch.inf
    return state | {name: t}, state | {name: t.clone()}, Changed({name: {"equal", "not finite"}})


@change("a prefix on one side")
def prefix(state, g): return state, {"model." + name: t for name, t in state.items()}, Changed({}, verdict=ITSELF)


@change("a layer more")
def more(state, g):
    new = {"extra.proj.weight": torch.randn(9, 5, generator=g), "extra.proj.bias": torch.randn(9, generator=g)}
    return state, state | new, Changed({name: {"only in b"} for name in new})


@change("a layer less")
def less(state, g):
    layer = pick([name.removesuffix(".weight") for name in state if name.endswith(".weight")], g)
    gone = [name for name in state if name.rpartition(".")[0] == layer]
    return state, {name: t for name, t in state.items() if name not in gone}, Changed({n: {"only in a"} for n in gone})


@change("two tensors swapped")
def swapped(state, g):
    names = matrices(state)
    pairs = [(a, b) for a, b in zip(names, names[1:]) if state[a].shape == state[b].shape
             and not torch.equal(state[a], state[b])]
    if not pairs: return None
    a, b = pick(pairs, g)
    return state, state | {a: state[b], b: state[a]}, Changed({a: {"changed"}, b: {"changed"}})


def changes(nets=None, kinds=None) -> Iterator[tuple[str, str, State, State, Changed]]:
    "All changes, or those of some networks and kinds: (network, kind, a, b, truth)."
    for net in nets or NETS:
        state = state_of(net)
        for kind in kinds or CHANGES:
            case = CHANGES[kind](dict(state), generator_of(kind, net))
            if case: yield net, kind, *case
