"The facts of a run have types, and files of earlier versions are read."
import json
from dataclasses import fields, is_dataclass, replace
from typing import Annotated, get_args, get_origin

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

import hooklab as hl
from hooklab.hooks.files import misfit
from hooklab.stats.records.facts import (
    BegunFacts,
    InputFacts,
    LayerFacts,
    LossKind,
    OutputFacts,
    ParameterFacts,
    RunFacts,
    StepInputs,
    facts_from,
    facts_kind,
    plain_facts,
)
from hooklab.stats.records.recorded import facts_of_both
from hooklab.stats.records.together import merge_facts

INPUT = InputFacts(8, 32, True, 0., .5, 1., -2., 2.)
LOOK = OutputFacts(False, False, False, False, .1, 1., 2., -2., 2., 3, 8, 5, None)


class Noisy(nn.Module):
    "A norm, a dropout, a copy that nothing trains, and an input that is called like a field of the facts."
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Tanh(), nn.Dropout(.2), nn.Linear(12, 4))
        self.teacher = nn.Sequential(nn.Linear(6, 12), nn.Linear(12, 4)).requires_grad_(False)

    def forward(self, x, step): return self.layers(x)*(1 + 0*step)


def recorded(n=25, model=None, **options):
    torch.manual_seed(0)
    model = model or Noisy()
    optimizer = torch.optim.Adam(model.layers.parameters(), .01, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, n)
    with hl.ActivationStats.for_diagnosis(**options).on(model, optimizer=optimizer) as stats:
        for _ in range(n):
            loss = F.cross_entropy(model(torch.randn(16, 6), step=torch.tensor(3.)), torch.randint(4, (16,)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            stats.step(loss)
    return stats


def rewritten(path, change):
    "The file of a record, with other facts of the run."
    with safe_open(path, "pt") as file:
        about, names = json.loads(file.metadata()["hooklab"]), file.keys()
        tensors = {name: file.get_tensor(name) for name in names}
    change(about["run"])
    save_file(tensors, path, {"hooklab": json.dumps(about)})
    return hl.ActivationStats.load(path)


def test_a_record_with_a_schedule_is_read_as_it_was(tmp_path):
    stats = recorded()
    stats.save(tmp_path/"run")
    back = hl.ActivationStats.load(tmp_path/"run")
    assert back.facts == stats.facts and str(hl.diagnose(back)) == str(hl.diagnose(stats))
    schedule, = back.facts.schedules.values()
    assert schedule.type == "CosineAnnealingLR" and schedule.calls == schedule.planned == 25
    assert back.facts.layers["layers.3"].p == .2 and back.facts.layers["layers.1"].running_mean_moves is True
    assert back.facts.layers["layers.0"].p is None and back.facts.parameters["teacher.0.bias"].has is False
    assert set(back.facts.inputs[0].arguments) == {"0", "step"} and back.facts.inputs[0].arguments["step"].high == 3
    assert {look.made_by.kind for look in back.facts.outputs} == {"cross-entropy"}


def older(run):
    "Facts as versions wrote them that knew fewer, and others."
    for what in ("passes", "begun", "modes", "watched", "other_steps", "counters", "thrown_away", "attention_hidden"):
        run.pop(what, None)
    for schedule in run["schedules"].values(): schedule["color"] = "red"
    for layer in run["layers"].values(): layer.update(batch_first=False, eps=1e-5)
    for p in run["parameters"].values():
        for name in ("moved", "dtype", "driven"): p.pop(name, None)
    for optimizer in run["optimizers"]:
        optimizer["betas"] = [.9, .999]
        for name in ("eps", "lr", "maximize"): optimizer.pop(name, None)
    for look in run["outputs"]: look.pop("pass")
    run |= {"kept": {"best": {"kind": "a state dict", "n": 2}}, "rates_beside": {"copy": [.2]}}


def test_files_of_earlier_versions_are_read(tmp_path):
    stats = recorded()
    stats.save(tmp_path/"run")
    back = rewritten(tmp_path/"run", older).facts
    assert back.passes == RunFacts().passes and back.begun == BegunFacts() and back.watched.stepped == 0
    assert back.modes.names == [] and back.thrown_away == 0 and back.loss_leads is True
    assert all(p.moved is None and p.dtype is None and not p.driven and p.n for p in back.parameters.values())
    assert back.optimizers[0].eps is None and back.optimizers[0].decay["layers.0.weight"] == 1e-4
    assert back.outputs == [replace(look, pass_=0) for look in stats.facts.outputs]
    assert back.layers == stats.facts.layers and back.schedules == stats.facts.schedules
    with pytest.raises(AttributeError): back.kept  # noqa: B018


def test_a_file_without_any_facts(tmp_path):
    recorded().save(tmp_path/"run")
    assert rewritten(tmp_path/"run", dict.clear).facts == RunFacts()
    stats = hl.ActivationStats().on(model := Noisy())
    model(torch.randn(4, 6), torch.zeros(()))
    stats.step()
    stats.remove()
    assert stats.facts.inputs is None and stats.facts.shapes["layers.0.weight"] == [12, 6]
    stats.save(tmp_path/"plain")
    assert hl.ActivationStats.load(tmp_path/"plain").facts == stats.facts


WRONG = {
    "a number for a word": lambda run: run["layers"][""].update(type=3),
    "a word for a number": lambda run: run["parameters"]["layers.0.bias"].update(n="12"),
    "less than nothing": lambda run: run["watched"].update(n=-1),
    "a list for facts": lambda run: run.update(modes=[1]),
    "no class": lambda run: run["layers"]["layers.0"].pop("type"),
    "half a loss": lambda run: run["outputs"][0].pop("guess"),
    "a step that is none": lambda run: run["inputs"][0].update(step=1.5),
    "an argument that is a number": lambda run: run["inputs"][0].update({"0": 1}),
    "half an argument": lambda run: run["inputs"][0]["0"].pop("std"),
    "an argument below another name": lambda run: run["inputs"][0].update({"step=": []}),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_what_no_version_has_written_is_refused(change, tmp_path):
    recorded(3).save(tmp_path/"run")
    with pytest.raises(ValueError, match="damaged"): rewritten(tmp_path/"run", change)


def all_of(kind):
    "An object of a type, in which nothing is as it is by default."
    if get_origin(kind) is Annotated: kind = get_args(kind)[0]
    kinds = [one for one in get_args(kind) if one is not type(None)] or [kind]
    if is_dataclass(kind): return kind(*(all_of(f.type) for f in fields(kind)))
    if get_origin(kind) is dict: return {"name": all_of(kinds[1])}
    if get_origin(kind) in (list, tuple): return get_origin(kind)([all_of(kinds[0])])
    if len(kinds) > 1 or kinds != [kind]: return all_of(kinds[0])
    return {str: "text", int: 7, float: 1.5, bool: True}[kind]


def test_every_field_comes_back():
    whole = all_of(RunFacts)
    in_file = json.loads(json.dumps(plain_facts(whole)))
    assert facts_from(RunFacts, in_file) == whole and misfit(in_file, facts_kind(RunFacts)) == ""
    none = plain_facts(RunFacts())
    assert facts_from(RunFacts, none) == RunFacts() and misfit(none, facts_kind(RunFacts)) == ""


WRITTEN = {  # by the versions before the facts had types
    "layers": {"": {"type": "Net", "leaf": False}, "bn": {
        "type": "BatchNorm1d", "leaf": True, "momentum": .1, "num_features": 4, "track_running_stats": True,
        "library": True, "passes_hooks": True, "running_mean_moves": False}},
    "parameters": {"bn.bias": {"n": 4, "shape": [4], "dtype": "float16", "trainable": True, "has": None, "got": True,
                               "written": False, "moved": True, "driven": False}},
    "optimizers": [{"type": "SGD", "n": 2, "n_foreign": 1, "n_idle": 0, "twice": 0, "decay": {"bn.bias": .1, "w": None},
                    "momentum": .9, "eps": 1e-8, "maximize": False, "lr": .3}],
    "modes": {"in_train": 1, "in_eval": 2, "rows": 3, "resting": ["bn"], "woke": {"bn": 4}, "looks": 5,
              "names": ["bn"]},
    "other_steps": {"n": 1, "steps": 2, "again": 3, "type": "Adam", "memory": 10.},
    "thrown_away": 4, "loss_leads": False, "attention_hidden": True, "resumed": [{"step": 5, "ended": 6}],
    "schedules": {"0": {"type": "StepLR", "calls": 7, "before": 1, "planned": None, "base": .1, "mode": "min",
                        "patience": 2, "cooldown": 3}},
    "copies": {"0": {"name": "target", "part": "net", "averaged": False, "moved": {"w": True},
                     "model_moved": {"w": True}, "dtype": "float32", "writes": 8, "stays": .5}},
    "counters": {"The buffer `n`": {"dtype": "bfloat16", "value": 256.}},
    "watched": {"n": 9, "stepped": 8, "made": [8]},
    "begun": {"n": 2, "anew": 2, "steps": 40, "rate": .1, "type": "Adam", "memory": 10.},
    "passes": {"of": {"0": {"n": 9, "lost": 1, "with_lost": 1, "steps": 8, "changed": 2, "again": 3, "added": True}},
               "mixed": {"0 1": {"n": 4, "apart": 2}}, "for_inputs": 5},
    "outputs": [{"step": 3, "pass": 1, "given": None, "sums_to_one": True, "log_sums_to_one": False, "between": True,
                 "never_negative": False, "apart": .1, "size": .2, "largest": .3, "least": -.3, "most": .2, "width": 3,
                 "n_rows": 8, "kind": "nll", "sign": -1, "guess": 1.1, "loss": .9, "target_mean": 0., "target_std": 0.,
                 "target_low": 0., "target_high": 0., "labels": [3, 5]}],
    "inputs": [{"step": 3, "0": {"n_samples": 8, "n": 32, "floating": True, "bad": 0., "mean": .5, "std": 1.,
                                 "low": -2., "high": 2., "samples_apart": 1., "features": 4, "widest": 1.,
                                 "narrowest": .5, "farthest": .1, "varied": 1., "target": False}}],
}


def inside(part, whole):
    "Has a value from a file all that another one has?"
    if isinstance(part, dict): return all(name in whole and inside(x, whole[name]) for name, x in part.items())
    if isinstance(part, list): return len(part) == len(whole) and all(map(inside, part, whole))
    return part == whole


def test_names_in_files_stay():
    "Earlier versions read what this one writes, and this one what they wrote."
    assert misfit(WRITTEN, facts_kind(RunFacts)) == "" and inside(WRITTEN, plain_facts(facts_from(RunFacts, WRITTEN)))
    assert set(WRITTEN) | {"shapes"} == {f.name for f in fields(RunFacts)}


def test_tensors_become_numbers_and_unknown_ones_none():
    p = ParameterFacts(torch.tensor(3), [3], True, None, torch.tensor(True), False, moved=torch.ones((), device="meta"))
    found = plain_facts(p)
    assert found == {"n": 3, "shape": [3], "trainable": True, "has": None, "got": True, "written": False,
                     "driven": False}
    assert facts_from(ParameterFacts, found).moved is None
    assert plain_facts(StepInputs(2, {"step": INPUT}))["step"] == 2


def test_facts_of_several_processes():
    first = RunFacts({"a": LayerFacts("Linear", True)}, {"a.weight": ParameterFacts(4, [4], True, True, False, True)},
                     inputs=[], loss_leads=None)
    other = RunFacts({"a": LayerFacts("Linear", True), "b": LayerFacts("ReLU", True)},
                     {"a.weight": ParameterFacts(4, [4], True, True, True, False, moved=False)},
                     inputs=[StepInputs(0, {"0": INPUT})], loss_leads=False, thrown_away=2)
    found = merge_facts([{"facts": first}, {"facts": None}, {"facts": other}])
    assert set(found.layers) == {"a", "b"} and found.inputs == other.inputs and found.thrown_away == 2
    p = found.parameters["a.weight"]
    assert p.got and p.written and p.moved is False and found.loss_leads is False
    assert not first.parameters["a.weight"].got and merge_facts([{"facts": None}]) == RunFacts()
    assert merge_facts([{"facts": first}, {"facts": RunFacts()}]).inputs == []


def test_facts_of_both_parts_of_a_run():
    def part(step, frozen, moved):
        return RunFacts({"n": LayerFacts("BatchNorm1d", True, running_mean_moves=moved)},
                        {"n.weight": ParameterFacts(4, [4], not frozen, True, False, False, moved)},
                        inputs=[StepInputs(step, {"0": INPUT})], outputs=[replace(LOOK, step=step)]*200)
    found = facts_of_both(part(1, False, True), part(9, True, False))
    p = found.parameters["n.weight"]
    assert p.trainable and p.moved and found.layers["n"].running_mean_moves
    assert [one.step for one in found.inputs] == [1, 9] and [look.step for look in found.outputs] == [1]*100 + [9]*100
    now = part(9, True, False)
    assert facts_of_both(None, now) is now


def test_a_loss_beside_its_output():
    of_classes = replace(LOOK, made_by=LossKind("nll", 1, 1.1, .9, labels=(3, 5)))
    found = json.loads(json.dumps(plain_facts(of_classes)))
    assert found["kind"] == "nll" and found["pass"] == 0 and found["labels"] == [3, 5] and "made_by" not in found
    assert facts_from(OutputFacts, found) == of_classes and facts_from(OutputFacts, plain_facts(LOOK)) == LOOK
