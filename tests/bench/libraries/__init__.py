"""Healthy trainings with libraries from outside, each written the way the library's own tutorial trains.

They measure false alarms where users have more than a model, a loss and pairs of tensors: trainers that own the loop,
and batches that are objects of a library. Their authors saw no rule of the tools and ran no tool on them. A module is
one program:

    SOURCE    "package: the tutorial that it follows"; the code is written anew
    PACKAGES  the distributions that it needs
    build()             the parts that the program has before its loop; `data` is the loader or the batch as users
                        of the library have it
    error(parts)        an error on data that was held back, or of the training itself: lower is better
    train(parts, record)  the loop of the tutorial; returns `error(parts)`

`record` has `on(model, optimizer=…)`, a context, and `step(loss)`, which is called once after each optimizer step.
Modules whose names begin with an underscore are no programs.

Fixed before the first run: a program trains if, with both seeds, its error after training is at most `FALLS_TO` of its
error before. Those that did not were changed or dropped before any tool saw them. A second run with a seed gives the
same losses, bit by bit. `python -m tests.bench.libraries [name …]` checks both."""
import ast
import gc
import importlib
import importlib.metadata
import os
import pkgutil
import sys
import traceback
import warnings
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time
from types import ModuleType

FALLS_TO, SEEDS = .7, (0, 1)


class Plain:
    "Has the place of a record and keeps the losses."
    def __init__(self): self.losses = []

    @contextmanager
    def on(self, model, optimizer=None, **options): yield self

    def step(self, loss=None): self.losses.append(None if loss is None else float(loss))


def packages_of(name: str) -> tuple[str, ...]:
    "What a program needs, read without importing it."
    for line in ast.parse((Path(__file__).parent/f"{name}.py").read_text()).body:
        if isinstance(line, ast.Assign) and line.targets[0].id == "PACKAGES": return ast.literal_eval(line.value)
    raise AttributeError(f"{name} has no PACKAGES")


def is_installed(package: str) -> bool:
    try: importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError: return False
    return True


def names() -> list[str]:
    "All programs, whether or not what they need is installed."
    found = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return [name for name in found if not name.startswith("_")]


def library(name: str) -> ModuleType: return importlib.import_module(f"{__name__}.{name}")


def libraries() -> list[ModuleType]:
    "The programs whose packages are installed, by name."
    return [library(name) for name in names() if all(map(is_installed, packages_of(name)))]


def seeded(seed: int):
    import torch
    torch.manual_seed(seed)


def tried(program: ModuleType) -> tuple[str, bool]:
    "What to print of a program that ran with each seed, and again with the last; and whether it is as it should be."
    said, trains, runs = [], True, []
    for seed in (*SEEDS, SEEDS[-1]):
        seeded(seed)
        before = program.error(program.build())
        seeded(seed)
        parts, record, start, wall = program.build(), Plain(), process_time(), perf_counter()
        after = program.train(parts, record)
        took, wall = process_time() - start, perf_counter() - wall
        runs.append((after, record.losses))
        trains &= after <= FALLS_TO*before
        if len(said) < len(SEEDS): said.append(f"{before:.3g} → {after:.3g}")
        del parts
        gc.collect()
    same = runs[-1] == runs[-2]
    faults = [text for text, is_so in (("DOES NOT TRAIN", not trains), ("DIFFERS", not same)) if is_so]
    text = "   ".join([f"{took:5.1f} s ({wall:.0f}) {len(record.losses):5} steps", *said, *faults])
    return text, trains and same and bool(record.losses)


def run_plainly(only=()) -> bool:
    "Run programs without any tool, and print seconds, errors and what fails; True if all train and repeat themselves."
    good = []
    for name in only or names():
        missing = [package for package in packages_of(name) if not is_installed(package)]
        if missing:
            print(f"{name:28} skipped: needs {', '.join(missing)}", flush=True)
            continue
        try: text, is_good = tried(library(name))
        except Exception: text, is_good = traceback.format_exc(limit=-4), False
        good.append(is_good)
        print(f"{name:28} {text}", flush=True)
    return all(good)


def main():
    import torch
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.environ.setdefault("TQDM_DISABLE", "1")
    sys.exit(not run_plainly(sys.argv[1:]))
