"""How results on the cases of checkpoints are graded. It was written before any of them was run.

A misfit is right if every tensor of the truth that is not undecidable comes out in `found.state_dict` bit for bit equal
(dtypes may differ; where it has to be computed, equal up to rounding), if no other tensor of the model is there, and if
those are in `found.missing` or `found.other_shape`. Of hard kinds the fraction of tensors that are right counts, too.
A tensor is wrong if another one comes out for it, or one for a tensor that is missing. A tensor that does not come out
is left open, and neither right nor wrong. Wrong and certain is the worst: its level in `found.sure` is "certain", or
`found.certain` is true, which calls every tensor certain. An undecidable tensor is never wrong, but calling it certain
is unearned, or wrong and certain if it is another one. Entries that are no tensor of the model should be in
`found.unused` or `found.other_shape`; those that are not count apart. An equal checkpoint has to be taken as it is, and
be certain.

A comparison is right if each tensor has one of its relations, a row that is left out being equal, with the number that
belongs to it within two percent, and if the verdict has one of the words that are asked for and none of the others. The
name of a row may have a prefix. A half load is right if something is said of a loud one, and nothing of a quiet one."""
import math
import re
from collections import Counter
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tests.bench.checkpoint_cases import Half, Truth
from tests.bench.checkpoint_changes import Changed


@dataclass
class Grade:
    "What became of one misfit, with the names of the tensors."
    right: bool
    fraction: float                                     # of the tensors that can be decided and are not missing
    wrong: list[str] = field(default_factory=list)
    wrong_and_certain: list[str] = field(default_factory=list)
    unearned: list[str] = field(default_factory=list)   # undecidable, called certain, and right by luck
    left_open: list[str] = field(default_factory=list)
    unsaid: list[str] = field(default_factory=list)     # missing, and not said to be
    not_unused: list[str] = field(default_factory=list)  # entries not said to be unused


def equals(found: Tensor, right: Tensor, near: bool = False) -> bool:
    if found.shape != right.shape: return False
    found = found.detach().to(right.device, right.dtype)
    return torch.allclose(found, right, rtol=1e-5, atol=1e-7) if near else torch.equal(found, right)


def names_in(said) -> list[str]:
    "Names, whether they are given as a list, as the keys of a dict, or as rows with a name."
    return [one if isinstance(one, str) else one[0] if isinstance(one, tuple) else one.name for one in said or ()]


def tails(name: str) -> list[str]:
    "What is left of a name without the keys that lead to it."
    parts = name.split(".")
    return [".".join(parts[i:]) for i in range(1, len(parts))]


def judge_misfit(truth: Truth, found, names) -> Grade:
    "Grade what was found for the tensors `names` of the model."
    state, sure = found.state_dict, found.sure
    other_shape = names_in(getattr(found, "other_shape", ()))
    missing, unused = {*names_in(found.missing), *other_shape}, [*names_in(found.unused), *other_shape]
    grade, fine, counted = Grade(False, 0.), 0, 0
    for name in names:
        right, came = truth.right.get(name), state.get(name)
        good = came is not None and right is not None and equals(came, right, name in truth.near)
        certain = came is not None and (sure.get(name) == "certain" or bool(found.certain))
        if name in truth.undecidable:
            if certain: (grade.unearned if good else grade.wrong_and_certain).append(name)
            continue
        counted += right is not None
        fine += good
        if came is None and right is None:
            if name not in missing: grade.unsaid.append(name)
        elif came is None: grade.left_open.append(name)
        elif not good:
            grade.wrong.append(name)
            if certain: grade.wrong_and_certain.append(name)
    grade.not_unused = sorted(truth.unused.difference(unused, *map(tails, unused)))
    grade.fraction = fine/counted if counted else math.nan
    grade.right = not (grade.wrong or grade.left_open or grade.unsaid)
    return grade


def judge_equal(found, state: dict) -> bool:
    "Is an equal checkpoint taken as it is, and certain?"
    whole = all(name in found.state_dict and equals(found.state_dict[name], t) for name, t in state.items())
    return whole and bool(found.certain) and not found.missing and not found.unused


def judge_half(half: Half, said: bool) -> str:
    "Right, missed, or a false alarm."
    if half.loud == bool(said): return "right"
    return "missed" if half.loud else "false alarm"


@dataclass
class Verdict:
    "What became of one comparison."
    right: bool
    rows: dict[str, str]       # tensors with a wrong relation, and which
    numbers: list[str]         # tensors without the number that belongs to them
    words: bool                # is the verdict right?


def row_of(name: str, rows: dict) -> object | None:
    "The row of a tensor, whose name may have a prefix; the shortest, if there are several."
    if name in rows: return rows[name]
    ends = sorted((other for other in rows if other.endswith("." + name)), key=len)
    return rows[ends[0]] if ends else None


def has_number(row, number: float | str) -> bool:
    "Does the row say this number, as `row.number` or in its text?"
    said = getattr(row, "number", None)
    if isinstance(number, str): return number in str(said) or number in str(row)
    text = str(row).replace("−", "-")
    given = [said] if isinstance(said, int | float) else re.findall(r"-?\d+\.?\d*(?:e[-+]?\d+)?", text)
    return any(math.isclose(float(one), number, rel_tol=.02) for one in given)


def judge_change(truth: Changed, found, names) -> Verdict:
    "Grade a comparison of the tensors `names`: those of a, and those that are only in b."
    rows = {row.name: row for row in found.rows}
    wrong, numbers = {}, []
    for name in names:
        row = row_of(name, rows)
        relation = "equal" if row is None else row.relation
        if relation not in truth.rows.get(name, {"equal"}): wrong[name] = relation
        elif name in truth.numbers and not has_number(row, truth.numbers[name]): numbers.append(name)
    said = str(found.verdict).lower()
    words = (not truth.verdict or any(w in said for w in truth.verdict)) and not any(w in said for w in truth.never)
    return Verdict(not wrong and not numbers and words, wrong, numbers, words)


def names_of_change(a: dict, b: dict, truth: Changed) -> list[str]:
    "The tensors a comparison is graded on."
    return [*a, *(name for name in b if name in truth.rows and name not in a)]


def summary(grades: list[tuple[str, Grade]]) -> dict[str, Counter]:
    "For each kind: cases, those that are right, tensors that are wrong, wrong and certain, unearned."
    counts: dict[str, Counter] = {}
    for kind, grade in grades:
        counts.setdefault(kind, Counter()).update(cases=1, right=grade.right, wrong=len(grade.wrong),
            wrong_and_certain=len(grade.wrong_and_certain), unearned=len(grade.unearned))
    return counts
