"""What a record adds to the first 30 and 100 steps of a training loop, and to those after them.

`python -m tests.bench first_steps mlp gcn` measures only these loops and keeps nothing. A record is measured from its
beginning, several times where a step is short. Where a step takes long, fewer steps stand for many: see `Plan`."""
import gc
from functools import partial
from statistics import median
from typing import NamedTuple

import torch

import hooklab as hl
from hooklab.hooks.select import leaves
from tests.bench.bench_stats import InALoop
from tests.bench.first_steps_loops import LOOPS, MORE
from tests.bench.measure import seconds, spread

FIRST, EARLY, ALL, PERIOD = 30, 100, 500, 36  # PERIOD: in a long run, one in so many steps is measured
OFTEN = 8  # and one in so many of the steps from 30 to 100
SECONDS = 60  # for a loop


class Plan(NamedTuple):
    "How many steps are made in one go, how many stand for steps 30 to 100 and 100 to 500, and how many records begin."
    block: int
    middle: int
    later: int
    starts: int

    @classmethod
    def of(cls, milliseconds: float, variants: int):
        block, middle, later = ((10, EARLY - FIRST, ALL - EARLY) if milliseconds < 8 else
                                (2, EARLY - FIRST, 4*PERIOD) if milliseconds < 40 else (3, 3*OFTEN, PERIOD))
        once = (FIRST + middle + later)*2*variants*1.2*milliseconds/1000
        return cls(block, middle, later, min(9, max(1, round(SECONDS/once))))


def diagnosed(model, optimizers, plan): return hl.ActivationStats.for_diagnosis().on(model, optimizer=optimizers).step


def recorded(model, optimizers, plan): return hl.ActivationStats().on(model).step


def with_fastai(model, optimizers, plan):
    after = InALoop(model)
    return lambda loss: after()


class Sums:
    "The least that a record of outputs and gradients could do: a sum and a sum of squares, which nobody reads."
    def __init__(self, model, optimizers, plan):
        self.row, self.rows = [], []
        for layer in leaves(model).values(): layer.register_forward_hook(self.look)

    def add(self, t):
        flat = t.detach().reshape(-1)
        self.row += flat.sum(), flat.dot(flat)

    def look(self, layer, inputs, output):
        output = output[0] if isinstance(output, tuple) else output
        self.add(output)
        if output.requires_grad: output.register_hook(self.add)

    def __call__(self, loss):
        self.rows.append(self.row)
        self.row = []


def nothing(model, optimizers, plan): return lambda loss: None


VARIANTS = {"hooklab, for a diagnosis": diagnosed, "hooklab": recorded, "fastai": with_fastai,
            "raw hooks, two sums": Sums, "plain, again": nothing}


def ready(build):
    "A loop that has made three steps without a record."
    torch.manual_seed(0)
    model, optimizers, step = build()
    for _ in range(3): step()
    return model, optimizers, step


def loops(build, variants, plan):
    "Steps of the loop with a record that has just begun, and what ends a step of each record."
    steps, ends = [], []
    for attach in variants.values():
        model, optimizers, step = ready(build)
        ends.append(attach(model, optimizers, plan))
        steps.append(partial(both, step, ends[-1]))
    return steps, ends


def both(step, after): after(step())


def compared(plain, others, steps, block):
    "For each of the others the ratio of all its steps; each block of it is between two without a record."
    took, beside = [0.]*len(others), [0.]*len(others)
    before = seconds(plain, block)
    for turn in range(steps//block):
        for i in range(len(others))[::-1 if turn % 2 else 1]:
            took[i] += seconds(others[i], block)
            after = seconds(plain, block)
            beside[i] += (before + after)/2
            before = after
    return [a/b for a, b in zip(took, beside)]


def begun(build, variants, plan):
    "The ratios of a record that begins: in its first 30 steps, its first 100, those after them, and all 500."
    plain, (others, ends) = ready(build)[2], loops(build, variants, plan)
    gc.collect()
    gc.disable()
    try:
        first, middle = (compared(plain, others, n, plan.block) for n in (FIRST, plan.middle))
        for end in ends:
            for _ in range(EARLY - FIRST - plan.middle): end(None)  # a record only counts the steps that are left out
        later = compared(plain, others, plan.later, plan.block)
    finally: gc.enable()
    early = [(FIRST*a + (EARLY - FIRST)*b)/EARLY for a, b in zip(first, middle)]
    return first, early, later, [(EARLY*a + (ALL - EARLY)*b)/ALL for a, b in zip(early, later)]


STRETCHES = "first 30 steps", "first 100 steps", "steps 100 to 500", "500 steps"


def in_loops(asked, variants=VARIANTS):
    "{title: {loop: spread}} of all variants and stretches, and the milliseconds of a step."
    tables = {f"{name}: {stretch}": {} for name in variants for stretch in STRETCHES}
    times = tables["plain: milliseconds a step"] = {}
    for loop, build in asked.items():
        step = ready(build)[2]
        each = [1000*seconds(step, 3)/3 for _ in range(7)]
        times[loop], plan = spread(each), Plan.of(median(each), len(variants))
        starts = [begun(build, variants, plan) for _ in range(plan.starts)]
        print(f"{loop} ({times[loop][0]:.2f} ms, {plan.starts} starts)", flush=True)
        for i, name in enumerate(variants):
            for stretch, ratios in zip(STRETCHES, zip(*starts)):
                tables[f"{name}: {stretch}"][loop] = spread([r[i] for r in ratios])
            print(f"  {name:<26}" + "".join(f"{tables[f'{name}: {s}'][loop][0]:8.3f}" for s in STRETCHES), flush=True)
    return tables


def with_median(table):
    middles = [row[0] for row in table.values()]
    return table | {"median": [round(median(middles), 3), min(middles), max(middles)]}


def measure(*names):
    tables = in_loops({name: (LOOPS | MORE)[name] for name in names or LOOPS})
    if names: return tables  # the median is that of all
    return {title: table if "milliseconds" in title else with_median(table) for title, table in tables.items()}
