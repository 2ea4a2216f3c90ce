"""Times variants of a piece of work against the plain piece, so that a busy or changing machine spoils the figures little."""
import gc
import math
from statistics import median, quantiles
from time import process_time


def seconds(work, times: int = 1) -> float:
    start = process_time()
    for _ in range(times): work()
    return process_time() - start


def spread(values: list[float]) -> list[float]:
    "The median, and the lower and upper quartile."
    low, high = quantiles(values, n=4)[::2] if len(values) > 1 else values*2
    return [round(value, 3) for value in (median(values), low, high)]


def ratios(plain, variants: dict, rounds: int = 21) -> dict:
    """{name: (median, lower and upper quartile) of the ratio to `plain`}, and under "plain" the noise: plain against itself."""
    return {name: spread(found) for name, found in in_rounds(plain, variants, rounds).items()}


def in_rounds(plain, variants: dict, rounds: int = 21) -> dict:
    """The ratios of each round.

    Each variant runs between two runs of `plain`, as in A B A C A, and is divided by their mean; every second round goes
    backwards."""
    work = {"plain": plain, **variants}
    for f in work.values(): f()
    found = {name: [] for name in work}
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            before = seconds(plain)
            for name in list(work)[::-1 if turn % 2 else 1]:
                took, after = seconds(work[name]), seconds(plain)
                found[name].append(2*took/(before + after))
                before = after
    finally: gc.enable()
    return found


def share(of: list) -> list[float]:
    "The share of those that are true, with the 95 % interval of Wilson, in percent."
    n, k, z = len(of), sum(map(bool, of)), 1.96
    if not n: return [math.nan]*3
    middle, half = (k + z*z/2)/(n + z*z), z*math.sqrt(k*(n - k)/n + z*z/4)/(n + z*z)
    return [round(100*x, 2) for x in (k/n, max(0, middle - half), min(1, middle + half))]
