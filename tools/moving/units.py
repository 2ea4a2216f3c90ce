"""The network of lesson 13 that reads a stamp as a three, with its weights, and the unseen digits of the lesson."""
import base64
from functools import cache

import torch
from torch import nn

import hooklab as hl
from moving.lessons import Lesson
from moving.networks import as_data, folded, in_whole_numbers

lessons = [Lesson("lessons/13-intervene", "model", "clean", "truth", "x_train", "fooled", "search_stamped", "layer",
                  "stamp")]
BITS = 16  # with eight, a few more of the digits are read as 3
SHOWN = 40  # a reader looks at one of these; all are counted


@cache
def lesson(): return lessons[0].load()


@cache
def network() -> nn.Sequential:
    "The trained network without batch norm, which is in the convolutions now, and as exact as its page has it."
    body = lesson().model.body
    convs = [folded(body[k], body[k + 1]) for k in (0, 3, 6)]
    for layer in (*convs, lesson().model.head): in_whole_numbers(layer, BITS)
    blocks = [part for conv in convs for part in (conv, nn.ReLU())]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), lesson().model.head)


def means(layer: nn.Module, model: nn.Module) -> torch.Tensor:
    "The mean of each unit over the training pictures."
    with hl.hook_output(layer) as hook:
        model(lesson().x_train)
        return hook.stored.mean((0, 2, 3))


def culprit() -> int:
    "The unit without which, at its mean, fewest stamped training pictures are read as 3, as the lesson finds it."
    usual = means(lesson().layer, lesson().model)
    def left(k):
        with hl.edit_output(lesson().layer, hl.ablate(k, to=usual[k])): return lesson().fooled(lesson().search_stamped)
    return min(range(16), key=left)


def read() -> list[int]:
    "How many stamped pictures are read as 3, and how many unstamped ones are right."
    stamped, clean = (network()(x).argmax(1) for x in (lesson().stamp(lesson().clean), lesson().clean))
    return [(stamped == 3).sum().item(), (clean == lesson().truth).sum().item()]


def read_without(k: int, units: int | list[int], to: float | list[float]) -> list[int]:
    "The same when units of layer k are off."
    with hl.edit_output(network()[k], hl.ablate(units, to=torch.tensor(to))): return read()


def measure() -> dict:
    unit, net, truth = culprit(), network(), lesson().truth
    usual = [[round(m, 4) for m in means(net[k], net).tolist()] for k in (3, 5)]
    stamped = lesson().stamp(lesson().clean)
    with hl.edit_output(net[3], hl.ablate(unit, to=torch.tensor(usual[0][unit]))): without = net(stamped).argmax(1)
    cured = (net(stamped).argmax(1) == 3) & (without == truth)
    alone = [[[read_without(k, unit, to*mean) for unit, mean in enumerate(of_layer)] for to in (0, 1)]
             for k, of_layer in zip((3, 5), usual)]
    pictures = bytes(lesson().clean.mul(16).round().int().flatten().tolist())
    return {"layers": [as_data(net[k], BITS) for k in (0, 2, 4, 8)], "unit": unit,
            "means": usual, "alone": alone, "whole": read(),
            "offered": SHOWN, "shown": cured[:SHOWN].tolist().index(True),
            "pictures": base64.b64encode(pictures).decode(), "truth": "".join(map(str, truth.tolist()))}
