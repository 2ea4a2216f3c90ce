"""The network of the home page, with its weights, and one unseen picture of each digit."""
from functools import cache

import torch
from torch import nn

from moving.lessons import Lesson
from moving.networks import as_data, in_whole_numbers, pixels

lessons = [Lesson("index", cells=("net",))]


@cache
def lesson(): return lessons[0].load()


@cache
def network() -> nn.Sequential:
    "The trained network, as exact as its page has it."
    for layer in lesson().net.requires_grad_(False).modules():
        if isinstance(layer, nn.Conv2d | nn.Linear): in_whole_numbers(layer)
    return lesson().net


def measure() -> dict:
    net, x, y = network(), lesson().x[1437:], lesson().y[1437:]
    answers = net(x).argmax(1)
    examples = [next(i for i in range(len(x)) if y[i] == d and answers[i] == d) for d in range(10)]
    examples[3] = lesson().which - 1437  # the one of the picture on the home page
    layers = [m for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    return {"layers": [as_data(layer) for layer in layers], "examples": pixels(x[torch.tensor(examples)]),
            "right": round(100*(answers == y).float().mean().item())}
