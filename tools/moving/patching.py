"""Lesson 14's experiment for every place and depth: threes with activations of eights, their own, and of others."""
from functools import cache

import torch

import hooklab as hl
from moving.lessons import Lesson

lessons = [Lesson("lessons/14-patching", "x", "y", "eights", "threes", "means", "sites", "record", "of_eights",
                  "of_others", "patched", "ahead", "low", "high", cells=("vit",))]
PLACES = [*range(17), slice(1, None)]  # the class token, the squares, and all squares together


@cache
def lesson(): return lessons[0].load()


def patch(site: str, place: int | slice, values: dict) -> tuple[int, list[int]]:
    "How much is recovered, and the mean probability of each digit, both in thousandths."
    logits = lesson().patched(site, place, values)
    back = (lesson().ahead(logits) - lesson().low)/(lesson().high - lesson().low)
    return round(1000*back), thousandths(logits.softmax(1).mean(0))


def thousandths(t: torch.Tensor) -> list: return t.mul(1000).round().int().tolist()


def measure() -> dict:
    vit, threes, sites, three = lesson().vit, lesson().threes, lesson().sites, lesson().means[1]
    with hl.hook_outputs(vit, names="*.pattern") as hooks: vit(lesson().eights)
    sources = {"eights": lesson().of_eights, "themselves": lesson().record(threes), "other threes": lesson().of_others}
    results = [[[patch(site, place, values) for place in PLACES] for site in sites] for values in sources.values()]
    return {"sites": sites, "sources": list(sources), "unpatched": thousandths(vit(threes).softmax(1).mean(0)),
            "recovered": [[[back for back, _ in line] for line in rows] for rows in results],
            "probabilities": [[[digits for _, digits in line] for line in rows] for rows in results],
            "looks": [thousandths(pattern.mean(0)[:, 0, 1:]) for pattern in hooks.stored],
            "three": thousandths(((three - three.min())/(three.max() - three.min())).flatten())}
