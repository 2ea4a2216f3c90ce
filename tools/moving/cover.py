"""The two networks of lesson 12, the first and the fixed one, with the pictures that the lesson looks at."""
import base64
from functools import cache

from torch import nn

from moving.lessons import Lesson
from moving.networks import as_data, folded, in_whole_numbers

lessons = [Lesson("lessons/12-cam", "model", "some", "fooled", "others", "x_valid", "y_valid", cells=("fixed",))]


@cache
def lesson(): return lessons[0].load()


@cache
def networks() -> list[nn.Sequential]:
    "Both without batch norm, which is in the convolutions now, and as exact as the page has them."
    found = []
    for model in (lesson().model, lesson().fixed):
        convs = [folded(model.body[k], model.body[k + 1]) for k in (0, 3, 6)]
        for layer in (*convs, model.head): in_whole_numbers(layer.requires_grad_(False))
        blocks = [part for conv in convs for part in (conv, nn.ReLU())]
        found.append(nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), model.head))
    return found


def truth() -> list[int]:
    "What the pictures show: six threes, and six others that are read as threes."
    y, others = lesson().y_valid, lesson().others
    return [3]*6 + y[y != 3][lesson().model(others).argmax(1) == 3][:6].tolist()


def measure() -> dict:
    shows, pictures = truth(), lesson().some
    return {"networks": [[as_data(net[k]) for k in (0, 2, 4, 8)] for net in networks()], "truth": shows,
            "pictures": base64.b64encode(bytes(pictures.mul(16).round().int().flatten().tolist())).decode(),
            "read": [net(pictures).argmax(1).tolist() for net in networks()]}
