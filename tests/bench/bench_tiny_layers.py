"""What a record for a diagnosis adds to a chain of 10, 100 and 1,000 tiny layers, if it measures all in each step.

Such a step is nothing but calls: it shows what a layer costs."""
import torch
from torch import nn

import hooklab as hl
from tests.bench.bench_first_steps import FIRST, VARIANTS, compared, loops, ready
from tests.bench.first_steps_loops import trains
from tests.bench.measure import spread

STARTS = {10: 15, 100: 7, 1000: 3}


def chain(layers):
    "Layers that keep what passes through them as large as it is, there and back."
    def build():
        model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers)))
        for layer in model: nn.init.orthogonal_(layer.weight)
        return trains(model, torch.randn(8, 4), torch.randint(4, (8,)), torch.optim.SGD(model.parameters(), 1e-6))
    return build


def all_layers(model, optimizers, plan):
    return hl.ActivationStats.for_diagnosis(turns=None).on(model, optimizer=optimizers).step


def measure(*counts: str):
    variants = VARIANTS | {"hooklab, for a diagnosis": all_layers}
    found = {}
    for layers in map(int, counts or STARTS):
        starts = []
        for _ in range(STARTS[layers]):
            build = chain(layers)
            plain, (others, _) = ready(build)[2], loops(build, variants, None)
            starts.append(compared(plain, others, FIRST, block=2 if layers == 1000 else 10))
        title = f"{layers:,} tiny layers, the first {FIRST} steps, to those without a record"
        found[title] = {name: spread(ratios) for name, ratios in zip(variants, zip(*starts))}
    return found
