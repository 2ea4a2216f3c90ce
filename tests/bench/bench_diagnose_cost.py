"""What the record for a diagnosis adds to ten training loops over 500 steps."""
import gc
from statistics import median, quantiles
from time import process_time

import torch

import hooklab as hl
from tests.bench.cost_workloads import WORKLOADS

FIRST, LAST, PERIOD = 100, 400, 36  # steps that measure all layers, steps in turns, and after which turns repeat
SECONDS = 60  # for a workload


def prepared(build, recorded):
    torch.manual_seed(0)
    model, optimizers, step = build()
    if not recorded: return step, None
    stats = hl.ActivationStats.for_diagnosis(turns=10**9)
    stats.on(model, optimizer=optimizers)

    def both():
        step()
        stats.step()
    return both, stats


def seconds(step, n):
    start = process_time()
    for _ in range(n): step()
    return process_time() - start


def compared(plain, recorded, blocks, n):
    "Ratios of blocks of `n` steps, each between two blocks without a record."
    found, before = [], seconds(plain, n)
    for _ in range(blocks):
        took, after = seconds(recorded, n), seconds(plain, n)
        found.append(2*took/(before + after))
        before = after
    return found


def added(build):
    "The ratio in the first 100 steps, in those after them, and in all 500; and the time of a step without a record."
    plain, (recorded, stats) = prepared(build, False)[0], prepared(build, True)
    for step in (plain, recorded): seconds(step, 3)
    each = seconds(plain, 5)/5
    scale = max(1, 2*(FIRST + LAST)*each/SECONDS)
    gc.collect()
    gc.disable()
    try:
        n = max(1, round(FIRST/10/scale))
        first = compared(plain, recorded, 11, n)
        stats.session.turn.first = stats.session.turn.ended
        stats.session.switch(stats, True)
        periods = max(1, round(LAST/PERIOD/scale))
        n = 12 if periods < 4 else PERIOD
        rest = compared(plain, recorded, max(6, periods*PERIOD//n), n)
    finally: gc.enable()
    stats.remove()
    return first, rest, 1000*each


def spread(r): return [round(value, 3) for value in (median(r), *quantiles(r, n=4)[::2])]


def in_loops(workloads=WORKLOADS):
    first, rest, whole = {}, {}, {}
    for build in workloads:
        a, b, each = added(build)
        name = f"{build.__name__} ({each:.1f} ms)"
        first[name], rest[name] = spread(a), spread(b)
        share = FIRST/(FIRST + LAST)
        whole[name] = [round(share*one + (1 - share)*other, 3) for one, other in zip(first[name], rest[name])]
        print(name, whole[name], first[name], rest[name], flush=True)
    for table in (first, rest, whole):
        middles = [row[0] for row in table.values()]
        table["median"] = [round(median(middles), 3), min(middles), max(middles)]
    return first, rest, whole


def measure():
    first, rest, whole = in_loops()
    return {"record for a diagnosis, 500 steps": whole, "the first 100 steps, which measure all layers": first,
            "the steps after that, in turns": rest}
