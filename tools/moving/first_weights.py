"""Lesson 07's network before the first step, for many sizes of its weights: outputs, gradients, and what it learns."""
from functools import cache

import torch
from torch import nn

from moving.lessons import Lesson, packed

lessons = [Lesson("lessons/07-init", "mlp", "at_start", "fit", "x_valid", "y_valid")]
STDS = [0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 0.1, 0.11, 0.12, 0.13, 0.14, 0.15, 0.16, 0.18, 0.2,
        0.25, 0.3, 0.4, 0.5, 0.7, 1.]
# with the range of the histogram
ACTIVATIONS = {"tanh": (nn.Tanh, (-1, 1)), "ReLU": (nn.ReLU, (-0.5, 3)), "GELU": (nn.GELU, (-0.5, 3))}
BINS = 31
BRIGHTEST = 0.4  # as in the lesson: of the square root of a fraction


@cache
def lesson(): return lessons[0].load()


def histogram(values: torch.Tensor, reach: tuple[float, float]) -> torch.Tensor:
    "The square root of the fraction of values in each bin; what lies outside is left out."
    return (values.histc(BINS, *reach)/values.numel()).sqrt()


def size(t: torch.Tensor) -> int:
    "A hundred times the power of ten of the standard deviation."
    return round(100*t.double().std().clamp(1e-20, 1e20).log10().item())


def start(std: float, activation: str, norm: bool) -> dict:
    "The network at step 0: size of outputs and gradients in each layer, and the histograms of the outputs."
    act, reach = ACTIVATIONS[activation]
    outputs, grads = lesson().at_start(lesson().mlp(std, act, nn.BatchNorm1d if norm else nn.Identity))
    return {"outputs": [size(o) for o in outputs], "gradients": [size(g) for g in grads],
            "histograms": torch.stack([histogram(o, reach) for o in outputs])}


def accuracy(std: float, activation: str, norm: bool) -> int:
    "Percent of unseen digits that are right after three epochs: the middle one of three seeds."
    right = []
    for seed in (1, 2, 3):
        model = lesson().mlp(std, ACTIVATIONS[activation][0], nn.BatchNorm1d if norm else nn.Identity, seed)
        lesson().fit(model, epochs=3)
        right.append((model.eval()(lesson().x_valid).argmax(1) == lesson().y_valid).float().mean().item())
    return round(100*sorted(right)[1])


def measure() -> dict:
    cases = [(std, activation, norm) for norm in (False, True) for activation in ACTIVATIONS for std in STDS]
    starts = [start(*case) for case in cases]
    return {"stds": STDS, "activations": {name: reach for name, (_, reach) in ACTIVATIONS.items()}, "bins": BINS,
            "right": [accuracy(*case) for case in cases], "outputs": [s["outputs"] for s in starts],
            "gradients": [s["gradients"] for s in starts], "brightest": BRIGHTEST,
            "histograms": packed(torch.stack([s["histograms"] for s in starts]), 0, BRIGHTEST)}
