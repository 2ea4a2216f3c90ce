"""Lesson 05's run at many learning rates: the loss, what is near zero in each layer, and what is right in the end."""
from functools import cache

import torch
from torch import nn

import hooklab as hl
from moving.lessons import Lesson, packed

lessons = [Lesson("lessons/05-stats", "cnn", "fit", "leaky", "x_valid", "y_valid")]
RATES = [float(f"{base}e-{k}") for k in (4, 3, 2, 1) for base in (1, 1.5, 2, 3, 5, 7)] + [1.]
HIGHEST = 5  # losses above are drawn outside the chart


@cache
def lesson(): return lessons[0].load()


def run(rate: float, norm: bool, leak: bool) -> tuple[torch.Tensor, torch.Tensor, float]:
    "The loss of each step, the fraction near zero (layer, step), and the accuracy on unseen digits."
    options = {"norm": nn.BatchNorm2d} if norm else {}
    model = lesson().cnn(**options, **({"act": lesson().leaky} if leak else {}))
    stats = hl.ActivationStats(modules="act?")
    with stats.on(model): losses = lesson().fit(model, rate, stats)
    right = (model.eval()(lesson().x_valid).argmax(1) == lesson().y_valid).float().mean().item()
    return torch.tensor(losses), stats.history.values("near_zero"), right


def measure() -> dict:
    runs = [run(rate, norm, leak) for leak in (False, True) for norm in (False, True) for rate in RATES]
    losses, near_zero, right = zip(*runs)
    return {"rates": RATES, "steps": len(losses[0]), "layers": len(near_zero[0]),
            "highest": HIGHEST, "right": [round(100*r) for r in right],
            "loss": packed(torch.stack(losses), 0, HIGHEST), "near_zero": packed(torch.stack(near_zero), 0, 1)}
