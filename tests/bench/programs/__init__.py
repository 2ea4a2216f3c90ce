"""Small programs with a fault that somebody really had, each beside the same program with the repair.

Each is written anew from a public report whose cause was confirmed: by the author of the report after a change, by a
maintainer, or by a merged change. The order of the calls is that of the original, none of its lines is. A program is a
module of one of six sets:

    SOURCE  where it was reported, as "owner/repository#number"
    YEAR    of the report
    AREA    one of `meaning.AREAS`
    CAUSE   one of `meaning.CAUSES`: what has to be changed
    TRUE    names of findings that are true of the run and follow from the fault, though they do not say what to change
    PLACE   layers or parameters at which the fault is, as `named_modules` and `named_parameters` call them; () for none
    build(repaired)       the parts that a program has before its loop
    train(parts, record)  the loop; returns an error on data that was held back: lower is better

The first rules were written with the open half in view; the kept half was for measuring them, once, and `half_of`
decides which half a source belongs to. Then the kept half was opened, and rules were written with both halves in view
while others, who saw no rule, ported the third set. It was measured once, opened, and the fourth, the fifth and the
sixth set were ported and measured in the same way. So `OPENED` are the sets that the rules of today were written with.

A module of `HEALTHY` has no fault: it trains in the way of a public project, and has neither AREA nor CAUSE. Its people
saw no rule either. What the tools said of them before any rule was changed because of them is kept as a first look."""
import hashlib
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from torch import nn

HALVES = "open_half", "kept_half"
OPENED = *HALVES, "third_set", "fourth_set", "fifth_set"
SETS = *OPENED, "sixth_set"
HEALTHY = "healthy_programs", "second_healthy_set"


def half_of(source: str) -> str: return HALVES[hashlib.sha256(source.encode()).digest()[0] % 2]


@dataclass
class Parts:
    "What a program has before its loop, and what `preflight` is given."
    model: nn.Module
    optimizer: Any                  # or a list of them
    data: Any                       # batches for training, a loader or a list: `(inputs, targets)` or what `call` takes
    loss: Callable | None = None    # `loss(output, target)`
    call: Callable | None = None    # `call(model, batch)` returns the loss, where that is none of (output, target)
    valid: Any = None               # batches that were held back
    scaler: Any = None              # for half precision
    repaired: bool = False          # for a loop that has the fault itself


def programs(name_of_set: str) -> list[ModuleType]:
    "The programs of one set, by name."
    package = importlib.import_module(f"{__name__}.{name_of_set}")
    names = sorted(found.name for found in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]
