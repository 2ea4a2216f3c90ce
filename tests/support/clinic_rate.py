"""How often the first finding of `diagnose` names the disease of a patient of the clinic.

    python tests/support/clinic_rate.py        one patient of each disease, as nbs/lessons/clinic.ipynb reports
    python tests/support/clinic_rate.py 5      five of each
"""
import sys
from collections import Counter

import torch

from hooklab.diagnosis.diagnosing import FAULTS
from hooklab.exercises import patients
from hooklab.exercises.diseases import DISEASES

SEEDS = range(int((sys.argv[1:] or ["1"])[0]))


def with_disease(what):
    "The first patient with this disease."
    losses, real = DISEASES[what].losses, bool(DISEASES[what].happened)
    each = (patients.patient(seed, losses=losses, real=real) for seed in range(2*len(DISEASES)))
    return next(p for p in each if p._plan.disease.what == what)


def first_findings(what):
    "How often each id is the first finding, for other weights and data of one patient."
    plan, found = with_disease(what)._plan, Counter()
    for seed in SEEDS:
        p = with_disease(what)
        p.seed = seed
        first = p.diagnose().first
        found[first.what if first else "nothing"] += 1
    return plan.disease, found


def rate() -> dict[str, tuple]:
    "By disease: whether `diagnose` has a word for it, and how often it says it; printed as soon as it is known."
    patients.patient(0)
    rows = {}
    for what in sorted(DISEASES):
        d, found = first_findings(what)
        right = sum(n for name, n in found.items() if name in (d.what, *d.also))
        others = ", ".join(name for name in found if name not in (d.what, *d.also))
        rows[what] = what in FAULTS, right
        print(f"{what:36}{right} of {len(SEEDS)}   {others}".rstrip(), flush=True)
    return rows


if __name__ == "__main__":
    torch.set_num_threads(1)
    rows = rate()
    for has_id, text in ((True, "with an id"), (False, "without")):
        those = [right for known, right in rows.values() if known == has_id]
        print(f"{text}: {sum(those)} of {len(those)*len(SEEDS)}")
