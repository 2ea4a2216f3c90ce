"""Which two faults of the clinic make a case: measured once, and stored in nbs/lib/exercises/ward.ipynb.

    python tests/support/clinic_pairs.py measure FILE [N]     measure N pairs (100); FILE gets a line for each
    python tests/support/clinic_pairs.py keep FILE            write those that make a case into the notebook

A case has a fault of a layer and a fault of the data, the loss, the optimizer or the loop. In each of two seeds, each
fault must show while the other is there: one thing that `clinic_doctor` claims of it holds, and for no healthy twin.
The treatment of one fault alone must leave a loss on new data that is more than nearly cured, in the clinic's terms,
and that of both must cure. A pair costs ten seconds or so; a file that is there already is gone on with.
"""
import json
import sys
import textwrap
import warnings
from collections import defaultdict
from pathlib import Path
from random import Random

import torch

from hooklab.exercises import treatment
from hooklab.exercises.checking import NotYet, own_settings
from hooklab.exercises.diseases import DISEASES
from hooklab.exercises.looks import measure_training, tables
from hooklab.exercises.reports import Claim
from hooklab.exercises.treatment import SEED_DISTANCE
from hooklab.exercises.ward import CasePlan, healthy_tables
from support.clinic_cures import CURES
from support.clinic_doctor import claims_of

NOTEBOOK = Path(__file__).resolve().parents[2]/"nbs/lib/exercises/ward.ipynb"
SEEDS = range(2)
LOOK_ALIKE = {  # two that show the same: nobody could say that there are two
    ("frozen part", "not in the optimizer"), ("frozen part", "other parameters in the optimizer"),
    ("not trained", "not in the optimizer"), ("not trained", "other parameters in the optimizer"),
    ("activations explode", "inputs not scaled"), ("activations explode", "learning rate too large"),
    ("activations vanish", "weight decay too strong"), ("gradients vanish", "learning rate too small"),
    ("samples alike", "constant inputs"), ("constant output", "constant inputs"), ("units alike", "constant inputs"),
    ("dropout too strong", "eval mode"), ("batch norm", "eval mode")}


def candidates() -> list[tuple[str, str, str]]:
    "Network, fault of a layer, fault of the run: in an order that mixes them."
    single = [d for d in DISEASES.values() if d.losses == 1 and not d.happened]
    of_layers = [d for d in single if d.plant.__module__.endswith("layer_diseases")]
    of_runs = [d for d in single if d not in of_layers]
    found = [(kind, a.what, b.what) for a in of_layers for b in of_runs for kind in a.kinds
             if kind in b.kinds and (a.what, b.what) not in LOOK_ALIKE]
    rng = Random(0)
    return sorted(found, key=lambda each: rng.random())


def evidence(plan: CasePlan, seed: int) -> list[list[Claim]]:
    "For each fault of a case: the claims of the doctor that show something, and are about its layers."
    p, where = plan.planted(seed)
    seen, found = tables(measure_training(p)), []
    twins = [healthy_tables(plan.kind, seed + k*SEED_DISTANCE) for k in (0, 1)]
    for fault, layers in zip(plan.faults, where):
        each = [(look, Claim(*claim)) for look, claim, layer in claims_of(fault.what, [*seen["outputs"]])
                if layer is None or layer in layers]
        found.append([claim for look, claim in each if claim.shows(seen[look], [twin[look] for twin in twins])])
    return found


def ratio(plan: CasePlan, seed: int, *treated: str) -> float:
    "The loss on new data after these treatments, in terms of the healthy twin's."
    def f(p):
        for what in treated: CURES[what](p)
    with own_settings(): return treatment.outcome_of(plan.admitted(seed), f).ratio


def measured(kind: str, a: str, b: str) -> dict:
    "What each seed says; the rest is left out as soon as the pair is no case."
    row = {"kind": kind, "layer": a, "run": b, "both": [], "only_layer": [], "only_run": [], "case": False}
    for seed in SEEDS:
        plan = CasePlan(kind, (DISEASES[a], DISEASES[b]), str(seed))
        shown = [bool(claims) for claims in evidence(plan, seed)]
        if not all(shown): return row | {"shown": shown}
        for name, treated in (("both", (a, b)), ("only_layer", (a,)), ("only_run", (b,))):
            try: row[name].append(round(ratio(plan, seed, *treated), 2))
            except NotYet as error: return row | {"stopped": str(error)[:80]}
            good = row[name][-1] <= treatment.CURED if name == "both" else row[name][-1] > treatment.NEARLY_CURED
            if not good: return row
    return row | {"case": True}


def rows_of(path: Path) -> list[dict]: return [json.loads(line) for line in path.read_text().splitlines()]


def measure(path: Path, n: int):
    known = {(row["kind"], row["layer"], row["run"]) for row in rows_of(path)} if path.exists() else set()
    for each in candidates()[:n]:
        if each in known: continue
        row = json.dumps(measured(*each))
        with path.open("a") as file: file.write(row + "\n")
        print(row, flush=True)


def cell(rows: list[dict]) -> str:
    "The pairs as Python: by network and fault of a layer, the faults of the run."
    found = defaultdict(list)
    for row in rows:
        if row["case"]: found[row["kind"], row["layer"]].append(row["run"])
    lines = ["#| exporti", "PAIRS = {  # network, fault of a layer: faults of the run"]
    for key, runs in sorted(found.items()):
        parts = textwrap.wrap(", ".join(sorted(runs)), 108, break_on_hyphens=False)
        quoted = [f'        "{part} "' for part in parts[:-1]] + [f'        "{parts[-1]}"']
        lines += [f'    ("{key[0]}", "{key[1]}"):', *quoted]
        lines[-1] += ","
    return "\n".join([*lines, "}"])


def keep(path: Path):
    nb, text = json.loads(NOTEBOOK.read_text()), cell(rows_of(path))
    (place,) = [c for c in nb["cells"] if "".join(c["source"]).startswith("#| exporti\nPAIRS")]
    place["source"] = text.splitlines(keepends=True)
    NOTEBOOK.write_text(json.dumps(nb, sort_keys=True, indent=1, ensure_ascii=False) + "\n")
    print(f"{sum(row['case'] for row in rows_of(path))} of {len(rows_of(path))} pairs make a case; now: nbdev-export")


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    what, file, *n = sys.argv[1:]
    if what == "keep": keep(Path(file))
    else: measure(Path(file), int((n or [100])[0]))
