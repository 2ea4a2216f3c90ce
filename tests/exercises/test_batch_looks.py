"The looks of lesson 22 decide about the clinic's faults of the data, and find nothing in healthy twins."
import json
import re
from random import Random

import pytest
import torch
from torch import nn

from hooklab.exercises.notebooks import lesson_exercises
from hooklab.exercises.patients import DISEASES
from hooklab.exercises.twins import Training
from support.checks import REPO

lesson = json.loads((REPO/"nbs"/"lessons"/"22-batch.ipynb").read_text(encoding="utf-8"))
tools = {"torch": torch, "nn": nn}
for parts in lesson_exercises(lesson).values(): exec("".join(parts["solution"]["source"]), tools)


def look(p):
    "What a learner of the lesson sees in one batch, and in the numbers of all samples."
    rows, (x, y) = p.rows[0], p.batch(p, 0)
    batches = [p.batch(p, i) for i in range(20)]
    return {"places": tools["same_as_stored"](x, p.prepare(p.x[rows])),
            "labels": (y != p.y[rows]).float().mean().item(),
            "different": len(p.rows.unique()), "spread": x.std(0).max().item(), "std": x.std().item(),
            "fit": tools["labels_fit"](*map(torch.cat, zip(*batches)), 39)}


DECIDES = {
    "label in the input": lambda seen: seen["places"] == 8/64,
    "train and validation differ": lambda seen: seen["places"] > .9,
    "labels shuffled": lambda seen: seen["labels"] > .5 and seen["fit"] > 1/40,
    "too few samples": lambda seen: seen["different"] < 32,
    "constant inputs": lambda seen: seen["spread"] == 0,
    "inputs not scaled": lambda seen: seen["std"] > 100,
}
CASES = [(disease, kind) for disease in DECIDES for kind in DISEASES[disease].kinds]


@pytest.mark.parametrize(("disease", "kind"), CASES)
def test_the_look_that_the_lesson_names_decides(disease, kind):
    for seed in (3, 4):
        sick, healthy = Training(kind, seed), Training(kind, seed)
        DISEASES[disease].plant(sick, Random(seed))
        assert DECIDES[disease](look(sick)) and not DECIDES[disease](look(healthy)), (look(sick), look(healthy))


def test_a_healthy_patient_passes_all_looks_but_those_for_a_network_that_scales():
    for kind in ("relu", "tanh", "cnn", "rnn"):
        seen = look(Training(kind, 5))
        odd = {disease for disease, decides in DECIDES.items() if decides(seen)}
        assert odd == ({"inputs not scaled"} if kind == "cnn" else set()) and seen["fit"] == 1/40


def test_blanking_finds_the_label_in_the_input():
    p = Training("relu", 6)
    DISEASES["label in the input"].plant(p, Random(6))
    p.train()
    x, y = map(torch.cat, zip(*(p.batch(p, i) for i in range(20))))
    rises = tools["leak_map"](p.model, x, y, 2)
    assert rises[0].sum() > 5*rises[1:].abs().sum()


def test_the_lesson_names_a_look_for_each_of_them():
    table = "\n".join("".join(cell["source"]) for cell in lesson["cells"])
    for disease in DECIDES: assert re.search(rf"^\| {disease} \| .+ \|$", table, re.M), disease
