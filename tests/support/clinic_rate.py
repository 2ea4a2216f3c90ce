"""How often the first finding of `diagnose` names the disease of a patient of the clinic: five seeds of each disease.

    python tests/support/clinic_rate.py

prints the table of nbs/lessons/clinic.ipynb."""
from collections import Counter

import torch

from hooklab.exercises import patients
from hooklab.exercises.diseases import DISEASES
from hooklab.stats.fault_table import FAULTS

SEEDS = range(5)


def with_disease(what):
    "The first patient with this disease."
    return next(p for p in map(patients.patient, range(2*len(DISEASES))) if p._plan.disease.what == what)


def first_findings(what):
    "How often each id is the first finding, for other weights and data of one patient."
    plan, found = with_disease(what)._plan, Counter()
    for seed in SEEDS:
        p = with_disease(what)
        p.seed = seed
        first = p.diagnose().first
        found[first.what if first else "nothing"] += 1
    return plan.disease, found


def rate(whats=None):
    "By disease: whether `diagnose` has a word for it, how often it says it, and what else it says."
    patients.patient(0)
    rows = {}
    for what in whats or DISEASES:
        d, found = first_findings(what)
        right = sum(n for name, n in found.items() if name in (d.what, *d.also))
        rows[what] = (what in FAULTS, right, {name: n for name, n in found.items() if name not in (d.what, *d.also)})
    return rows


if __name__ == "__main__":
    torch.set_num_threads(1)
    rows = rate()
    for what, (_, right, others) in sorted(rows.items()): print(f"{what:36}{right} of {len(SEEDS)}   {others or ''}")
    known = [right for is_known, right, _ in rows.values() if is_known]
    rest = sum(right for is_known, right, _ in rows.values() if not is_known)
    print(f"with an id: {sum(known)} of {len(known)*len(SEEDS)}")
    print(f"without: {rest} of {(len(rows) - len(known))*len(SEEDS)}")
