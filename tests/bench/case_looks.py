"""What one sees when one looks into a program of programs/: its loss, layers, gradients, steps, batch, modes, and what
preflight and diagnose say. Measured with plain hooks of torch, for the cases of the site.

A look is a picture (lines over steps) or a small table. Both texts of a program are looked at in the same way, with the
same random numbers, so that what differs between them is the fault."""
import contextlib
import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import hooklab as hl
from hooklab.hooks.tree import map_tensors, named_tensors
from tests.bench.bench_programs import alone, checked
from tests.bench.programs import Parts

POINTS = 40  # of a line
MOST_LAYERS = 6  # of a picture
MOST_ROWS = 12  # of a table


def digits(x: float) -> float | str:
    "A number with three digits; JSON has no NaN and no infinity."
    x = float(x)
    return float(f"{x:.3g}") if math.isfinite(x) else str(x).replace("nan", "NaN")


@dataclass
class Lines:
    "Numbers over steps, a line for each name."
    steps: list[int] = field(default_factory=list)
    lines: dict[str, list[float | None]] = field(default_factory=dict)

    def add(self, step: int, numbers: dict[str, float]):
        for name in numbers: self.lines.setdefault(name, [None]*len(self.steps))
        self.steps.append(step)
        for name, line in self.lines.items(): line.append(digits(numbers[name]) if name in numbers else None)

    def thinned(self) -> dict:
        "At most so many points, the first and the last among them, of layers from all over the model."
        every = sorted({round(i*(len(self.steps) - 1)/(POINTS - 1)) for i in range(POINTS)}) if self.steps else []
        names = [*self.lines]
        if len(names) > MOST_LAYERS:
            names = [names[round(i*(len(names) - 1)/(MOST_LAYERS - 1))] for i in range(MOST_LAYERS)]
        return {"steps": [self.steps[i] for i in every], "of": len(self.lines),
                "lines": {name: [self.lines[name][i] for i in every] for name in names}}


def optimizers_of(given: Any) -> list[torch.optim.Optimizer]:
    return [o for o in (given if isinstance(given, list | tuple) else [given]) if isinstance(o, torch.optim.Optimizer)]


class Watch:
    """The record that a program gets: notes in every few steps what hooks on layers and optimizers see.

    Where a step is not made in each batch, what belongs to it is noted at the next one that is."""
    KINDS = "loss", "outputs", "gradients", "updates"

    def __init__(self, n_steps: int):
        self.n, self.last, self.every = 0, n_steps - 1, max(1, n_steps//POINTS)
        self.lines = {kind: Lines() for kind in self.KINDS}
        self.seen = {kind: {} for kind in self.KINDS}
        self.next = dict.fromkeys(self.KINDS, 0)
        self.before = {}

    @contextlib.contextmanager
    def on(self, model, optimizer=None, **options):
        self.names = {id(p): name for name, p in model.named_parameters()}
        handles = [m.register_forward_hook(self.saw(name)) for name, m in model.named_modules()
                   if not any(m.children()) and name]
        for o in optimizers_of(optimizer):
            handles += [o.register_step_pre_hook(self.begins), o.register_step_post_hook(self.ends)]
        try: yield self
        finally:
            for handle in handles: handle.remove()

    def due(self, kind: str) -> bool: return self.n >= self.next[kind] or self.n == self.last

    def saw(self, name: str):
        def hook(module, args, output):
            if not self.due("outputs") or not torch.is_grad_enabled(): return
            found = [t for _, t in named_tensors(output) if t.is_floating_point() and t.numel() > 1]
            if found: self.seen["outputs"][name] = found[0].detach().float().std().item()
        return hook

    def begins(self, optimizer, args, kwargs):
        if not self.due("updates"): return
        for group in optimizer.param_groups:
            for p in group["params"]:
                name = self.names.get(id(p), "(not in the model)")
                self.before[id(p)] = p.detach().clone()
                self.seen["gradients"][name] = 0. if p.grad is None else p.grad.detach().float().norm().item()

    def ends(self, optimizer, args, kwargs):
        for group in optimizer.param_groups:
            for p in group["params"]:
                before = self.before.pop(id(p), None)
                if before is None: continue
                size = before.float().norm().item()
                moved = (p.detach() - before).float().norm().item()
                if size: self.seen["updates"][self.names.get(id(p), "(not in the model)")] = moved/size

    def step(self, loss=None):
        if loss is not None: self.seen["loss"]["loss"] = float(loss)
        for kind, numbers in self.seen.items():
            if numbers and self.due(kind):
                self.lines[kind].add(self.n, numbers)
                self.next[kind] = (self.n//self.every + 1)*self.every
            numbers.clear()
        self.before.clear()
        self.n += 1


class Counter:
    "Counts the steps of a program."
    def __init__(self): self.n = 0

    @contextlib.contextmanager
    def on(self, *args, **options): yield self

    def step(self, loss=None): self.n += 1


# ---- before the training

def first_batches(parts, n: int = 2) -> list:
    data = parts.data
    return [*itertools.islice(iter(data), n)]


def described(t: Tensor) -> list:
    "Shape, dtype and what is in a tensor."
    numbers = t.detach().float() if not t.is_complex() else t.detach().abs().float()
    if not t.numel(): return [str([*t.shape]), str(t.dtype).removeprefix("torch."), "", ""]
    few = [str(digits(x)) for x in numbers.flatten()[:4].tolist()]
    return [" × ".join(map(str, t.shape)) or "one number", str(t.dtype).removeprefix("torch."),
            f"{digits(numbers.min())} to {digits(numbers.max())}", ", ".join(few) + (" …" if t.numel() > 4 else "")]


def batch_table(parts) -> dict:
    rows = []
    for i, batch in enumerate(first_batches(parts)):
        rows += [[f"batch {i}", name or "inputs", *described(t)] for name, t in named_tensors(batch)]
    return {"columns": ["batch", "part", "shape", "dtype", "range", "first numbers"], "rows": rows[:MOST_ROWS]}


def loss_of(parts, batch) -> float:
    if parts.call: return float(parts.call(parts.model, batch))
    inputs, targets = batch
    return float(parts.loss(parts.model(*inputs) if isinstance(inputs, tuple | list) else parts.model(inputs), targets))


def with_part_of_others(batch, name: str):
    "The batch, with this part of it from other samples."
    names = iter([n for n, _ in named_tensors(batch)])
    return map_tensors(lambda t: t.roll(1, 0) if next(names) == name else t, batch)


def other_rows_table(parts) -> dict:
    "The loss of the first batch after the run, and with parts of other samples: what has the model learned to use?"
    batch = first_batches(parts, 1)[0]
    parts.model.eval()
    parts_of = [(name, t) for name, t in named_tensors(batch) if t.dim() and len(t) > 1]
    if len(parts_of) == 1: parts_of = []  # all of it from other samples is the same batch in another order
    given = {"as it is": batch, "as it is, again": batch} | {
        f"part {name or 0} of other samples": with_part_of_others(batch, name) for name, _ in parts_of}
    rows = []
    with torch.no_grad():
        for label, changed in given.items():
            torch.manual_seed(1)
            try: rows.append([label, digits(loss_of(parts, changed))])
            except Exception as error: rows.append([label, type(error).__name__])
    return {"columns": ["first batch", "loss"], "rows": rows[:MOST_ROWS]}


# ---- after the training

def modes_table(parts) -> dict:
    batch, rows = first_batches(parts, 1)[0], []
    for mode in ("train", "train", "eval", "eval"):
        parts.model.train(mode == "train")
        with torch.no_grad():
            try: rows.append([f"{mode} mode", digits(loss_of(parts, batch))])
            except Exception as error: rows.append([f"{mode} mode", type(error).__name__])
    return {"columns": ["the same batch in", "loss"], "rows": rows}


def how_far(old: Tensor | None, new: Tensor) -> str:
    "How far a parameter has moved, as a part of its size."
    if old is None or old.shape != new.shape: return ""
    moved, size = (new - old).float().norm().item(), old.float().norm().item()
    if not moved: return "not at all"
    return f"{100*moved/size:.3g}%".replace("nan%", "NaN") if size else "from zero"


def parameters_table(parts, before: dict[str, Tensor]) -> dict:
    groups = [group for o in optimizers_of(parts.optimizer) for group in o.param_groups]
    has = {id(p): group["lr"] for group in groups for p in group["params"]}
    rows = []
    for name, p in parts.model.named_parameters():
        rows.append([name, " × ".join(map(str, p.shape)), "yes" if p.requires_grad else "no",
                     f"lr {digits(has[id(p)])}" if id(p) in has else "no", how_far(before.get(name), p.detach())])
    own = {id(p) for p in parts.model.parameters()}
    others = sum(key not in own for key in has)
    if others: rows.append([f"{others} in the optimizer only", "", "", "", ""])
    return {"columns": ["parameter", "shape", "trainable", "in the optimizer", "moved in the run"], "rows": rows}


def said_by(found) -> list[list]: return [[f.sure, f.what, f.evidence, [*f.layers]] for f in found]


# ---- all looks

def prepared(text: str) -> dict:
    space = {"__name__": "case", "Parts": Parts}
    exec(compile(text, "case", "exec"), space)
    return space


def looks_of(text: str) -> dict:
    "All looks of one text of a program, and its score."
    space = prepared(text)
    def ready(): return space["build"]()
    looks = {}
    with alone(0):
        counter = Counter()
        space["train"](ready(), counter)
    with alone(0): looks["batch"] = batch_table(ready())
    with alone(0):
        parts, watch = ready(), Watch(counter.n)
        before = {name: p.detach().clone() for name, p in parts.model.named_parameters()}
        looks["score"] = digits(space["train"](parts, watch))
        looks |= {kind: lines.thinned() for kind, lines in watch.lines.items()}
        looks["parameters"] = parameters_table(parts, before)
        looks["modes"], looks["other rows"] = modes_table(parts), other_rows_table(parts)
    with alone(0):
        try: looks["preflight"] = said_by(checked(ready()))
        except Exception as error: looks["preflight"] = [["error", type(error).__name__, str(error)[:200], []]]
    with alone(0):
        stats = hl.ActivationStats.for_diagnosis()
        space["train"](ready(), stats)
        looks["diagnose"] = said_by(hl.diagnose(stats))
    return looks
