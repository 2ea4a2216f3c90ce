"""Training loops as different people write them, each with a checkpoint that is complete, or lacks one state.

A module is a loop:

    make()              whatever holds a run that begins: an object, a dict, a tuple, some functions
    step(run)           trains for one step and returns the loss
    save(run, without)  the checkpoint; without the states named in `without`, as by somebody who forgot them
    load(run, saved)    puts it into a fresh run; returns that run, a new one, or None. What is absent stays fresh.
    WARM, STEPS         steps before the checkpoint, so that each state is in use, and steps compared after it
    STATES              {state: fragments, one of which a finding has to contain to name this state}
    CONSEQUENCES        {state: fragments of what else changes when this state is lost}, where anything does
    SILENT              states whose loss changes nothing: neither a loss within STEPS nor a state after them
    DIFFERS             True where two runs with the same seeds differ by themselves, as do a run and the resumed one

`trainers()` are three loops that belong to a library. Such a module has `trainer(folder, complete=True)`, which makes
all that a user makes, and LOST: {state: fragments}, the states that the checkpoints of the library lack unless
`complete`.

What counts as right was fixed before any check was run on these loops. A check that compares the run that goes on with
one resumed from the checkpoint

- says nothing about a complete checkpoint, also where other seeds are set before the resumed run is made;
- names a state that was left out and is not silent: one finding or more contains a fragment of it, as a whole word (and
  what may be a word of any sentence, as in PROSE, as part of a path: behind a dot, a bracket or a quotation mark);
- names nothing else: each finding contains a fragment of the state, of its consequences, or of OF_ANY, since losses
  that part follow from any state, as another order of the data follows from a random state;
- says nothing where the state that was left out is silent, or names this state alone, which may differ at first;
- blames no state in a loop that differs by itself, whose checkpoint has all that it can have, and says that it differs.

`judged` decides about one list of findings. `what_is_wrong` and `effects` prove, with nothing but the loop itself, that
a loop is what it claims to be."""
import importlib
import io
import pickle
import pkgutil
import random
import re
from collections import deque
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

TRAINERS = "accelerate_loop", "hf_trainer", "lightning_trainer"
ORDER = "batches", "batch", "order", "loader", "sampler", "position"  # an order of data, which only the batches show
TORCH_RANDOM = "random", "rng", "torch's", "torch.get_rng_state"      # the random states of the process
PYTHON_RANDOM = "python", "`random`", "random.getstate", "random module"
NUMPY_RANDOM = "numpy", "np.random"
RANDOM = {*TORCH_RANDOM, *PYTHON_RANDOM, *NUMPY_RANDOM}
OF_ANY = "losses", "first loss", "the loss"
PROSE = {*"at b c d done first g i it key left n next out read right second seen step t w".split()}


def modules() -> list[ModuleType]:
    return [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)
            if found.name not in TRAINERS]


def loops() -> list[ModuleType]:
    "The loops that are the same each time, by name."
    return [loop for loop in modules() if not differs(loop)]


def loops_that_differ() -> list[ModuleType]: return [loop for loop in modules() if differs(loop)]
def trainers() -> list[ModuleType]: return [importlib.import_module(f"{__name__}.{name}") for name in TRAINERS]
def differs(loop: ModuleType) -> bool: return getattr(loop, "DIFFERS", False)
def name_of(loop: ModuleType) -> str: return loop.__name__.rpartition(".")[2]


def but(saved: dict, without=()) -> dict:
    "What is saved, without the states that are left out."
    return {name: value for name, value in saved.items() if name not in without}


def pairs() -> list[tuple[ModuleType, str]]:
    "Each loop with each of its states, except for those that differ by themselves."
    return [(loop, state) for loop in loops() for state in loop.STATES]


def contains(text: str, fragments) -> bool:
    def before(fragment): return r"(?<=[.\[`'\"])" if fragment.lower() in PROSE else r"(?<!\w)"
    return any(re.search(rf"{before(fragment)}{re.escape(fragment)}(?!\w)", text, re.I) for fragment in fragments)


def judged(loop: ModuleType, state: str, findings: list[str]) -> tuple[bool, list[str]]:
    "Whether the findings name the state, and those that name something else."
    accepted = loop.STATES[state]
    allowed = (*accepted, *getattr(loop, "CONSEQUENCES", {}).get(state, ()), *OF_ANY)
    if RANDOM & {*accepted}: allowed += ORDER
    return any(contains(text, accepted) for text in findings), [t for t in findings if not contains(t, allowed)]


# What follows proves the loops with nothing but themselves.

def seed(number: int):
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


def on_disk(saved: Any) -> Any:
    "The checkpoint as another process finds it: it shares nothing with the run."
    if isinstance(saved, bytes | str | Path): return saved
    file = io.BytesIO()
    torch.save(saved, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=False)


def content(saved: Any) -> Any:
    "What is in a checkpoint, also in one that is a file or its bytes."
    if isinstance(saved, str | Path): saved = Path(saved).read_bytes()
    if not isinstance(saved, bytes): return on_disk(saved)
    return torch.load(io.BytesIO(saved), weights_only=False) if saved[:2] == b"PK" else pickle.loads(saved)


def same(a: Any, b: Any) -> bool:
    "Whether two checkpoints have the same content, to the last bit."
    if type(a) is not type(b): return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and bool(torch.equal(a.nan_to_num(7.), b.nan_to_num(7.)))
    if isinstance(a, np.ndarray): return a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, dict): return [*a] == [*b] and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple | deque): return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b) or a != a


def trained(loop: ModuleType, run: Any) -> tuple[list[float], Any]:
    "The losses of STEPS steps, and a complete checkpoint after them."
    return [torch.as_tensor(loop.step(run)).item() for _ in range(loop.STEPS)], content(loop.save(run))


def begun(loop: ModuleType) -> Any:
    seed(0)
    run = loop.make()
    for _ in range(loop.WARM): loop.step(run)
    return run


def resumed(loop: ModuleType, saved: Any) -> tuple[list[float], Any]:
    "The same of a fresh run that reads a checkpoint, in a process that began with other seeds."
    seed(1)
    run = loop.make()
    loaded = loop.load(run, saved)
    return trained(loop, run if loaded is None else loaded)


def what_is_wrong(loop: ModuleType) -> list[str]:
    "Which claims of a loop do not hold: an empty list for a good one."
    run = begun(loop)
    saved = on_disk(loop.save(run))
    lacking = {state: on_disk(loop.save(run, without=(state,))) for state in loop.STATES}
    first, found = trained(loop, run), []
    again = trained(loop, begun(loop))
    whole = resumed(loop, saved)
    if differs(loop): return ["it goes on in the same way"] if first[0] in (again[0], whole[0]) else []
    if first[0] != again[0]: found.append(f"two runs differ: {first[0]}, {again[0]}")
    if whole[0] != first[0]: found.append(f"the complete checkpoint goes on with {whole[0]} and not {first[0]}")
    elif not same(whole[1], first[1]): found.append("after the complete checkpoint, states differ")
    for state, effect in effects(loop, lacking, first).items():
        silent = state in getattr(loop, "SILENT", ())
        if silent != (effect == "nothing"): found.append(f"without {state}: {effect}, and silent is {silent}")
    return found + [f"unknown: {name}" for name in {*getattr(loop, "CONSEQUENCES", ()), *getattr(loop, "SILENT", ())}
                    if name not in loop.STATES]


def effects(loop: ModuleType, lacking: dict[str, Any], first: tuple[list[float], Any]) -> dict[str, str]:
    "What each state changes that a checkpoint lacks: losses, only states, or nothing."
    found = {}
    for state, saved in lacking.items():
        losses, after = resumed(loop, saved)
        found[state] = "losses" if losses != first[0] else "states" if not same(after, first[1]) else "nothing"
    return found


def what_is_wrong_with_trainer(module: ModuleType, folder: str | Path) -> list[str]:
    "The same for a loop that belongs to a library: what its checkpoints lack is in LOST, and can be put into them."
    found = []
    for complete in (True, False):
        seed(2)
        whole, again = module.ends(Path(folder)/str(complete), complete)
        other = {name for name in whole if not same(whole[name], again[name])}
        if complete and other: found.append(f"resumed from a complete checkpoint, these differ: {sorted(other)}")
        if not complete and not {*module.LOST} <= other: found.append(f"only these differ: {sorted(other)}")
    return found
