"What `find_nan` adds to a training step, beside torch's own search for NaN, which looks at backward passes only."
import torch

import hooklab as hl
from tests.bench.bars import FIND_NAN
from tests.bench.first_steps_loops import LOOPS
from tests.bench.measure import ratios, seconds

ROUNDS = {"mlp": 21, "moe": 21, "vit": 11, "gpt": 7}


def loop(build, watched=False):
    torch.manual_seed(0)
    model, _, step = build()
    if watched: hl.find_nan(model)
    return step


def several(step, times): return lambda: seconds(step, times)


def with_anomaly(step):
    def work():
        with torch.autograd.set_detect_anomaly(True): step()
    return work


def measure(*names: str):
    found = {}
    for name in names or ROUNDS:
        build = LOOPS[name]
        plain, watched, searched = loop(build), loop(build, watched=True), with_anomaly(loop(build))
        times = max(1, round(.03/(seconds(plain, 9)/9)))  # pieces of work of 30 ms or more
        others = {"hooklab": several(watched, times), "torch, detect_anomaly": several(searched, times)}
        found[FIND_NAN.format(name)] = ratios(several(plain, times), others, ROUNDS[name])
    return found
