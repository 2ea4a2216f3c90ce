"""What is answered to a wrong choice: what was measured in the program, and in its repaired twin."""
import math
from collections.abc import Callable


def numbers(line: list) -> list[float]:
    "The finite numbers of a line."
    return [float(x) for x in line if x is not None and math.isfinite(float(x))]


def middle(found: list[float]) -> float:
    found = sorted(found)
    return found[len(found)//2] if found else math.nan


def in_percent(x: float) -> str: return f"{100*x:.2g}%"


def of_all(n: int, total: int, what: str) -> str: return f"{n or 'none'} of the {total} {what}"


# ---- measures: each says one thing of the looks of a program, in words that fit both of its texts

def step_length(looks: dict) -> str:
    return in_percent(middle([x for line in looks["updates"]["lines"].values() for x in numbers(line)]))


def smallest_gradient(looks: dict) -> str:
    found = [middle(numbers(line)) for line in looks["gradients"]["lines"].values()]
    return f"{min(found, default=math.nan):.2g} to {max(found, default=math.nan):.2g}"


def spread_of_outputs(looks: dict) -> str:
    found = [middle(numbers(line)) for line in looks["outputs"]["lines"].values()]
    return f"{min(found, default=math.nan):.2g} to {max(found, default=math.nan):.2g}"


def counted(looks: dict, column: int, cell: str) -> str:
    "How many parameters have this cell."
    rows = [row for row in looks["parameters"]["rows"] if row[1]]
    return of_all(sum(row[column] == cell for row in rows), len(rows), "parameters")


def not_in_optimizer(looks: dict) -> str: return counted(looks, 3, "no")


def frozen(looks: dict) -> str: return counted(looks, 2, "no")


def unmoved(looks: dict) -> str: return counted(looks, 4, "not at all")


def last_rate(looks: dict) -> str:
    found = dict.fromkeys(row[3].removeprefix("lr ") for row in looks["parameters"]["rows"] if row[3].startswith("lr "))
    return " and ".join(found)


def gradients_over_time(looks: dict) -> str:
    lines = [line for line in looks["gradients"]["lines"].values() if line]
    first, last = (max((x for line in lines for x in numbers([line[at]])), default=math.nan) for at in (0, -1))
    return f"{first:.2g} at the first step and {last:.2g} at the last one"


def first_loss(looks: dict) -> str: return f"{numbers(looks['loss']['lines']['loss'])[0]:.3g}"


def first_numbers(looks: dict) -> str:
    rows = looks["batch"]["rows"]
    return " in one and ".join(next(row[5] for row in rows if row[0] == f"batch {i}") for i in (0, 1))


def range_of_inputs(looks: dict) -> str: return looks["batch"]["rows"][0][4]


def eval_twice(looks: dict) -> str: return " and ".join(str(row[1]) for row in looks["modes"]["rows"][2:])


def train_and_eval(looks: dict) -> str: return " and ".join(str(looks["modes"]["rows"][i][1]) for i in (0, 2))


def bad_numbers(looks: dict) -> str:
    bad = [x for x in looks["loss"]["lines"].get("loss", []) if isinstance(x, str)]
    return of_all(len(bad), len(looks["loss"]["steps"]), "recorded losses")


def with_other_inputs(looks: dict) -> str:
    rows = looks["other rows"]["rows"]
    return " and ".join(str(row[1]) for row in (rows[0], *rows[2:3]))


def with_other_targets(looks: dict) -> str:
    rows = looks["other rows"]["rows"]
    return " and ".join(str(row[1]) for row in (rows[0], rows[-1]))


MEASURES: dict[str, tuple[Callable[[dict], str], str]] = {
    "step_length": (step_length, "In the median over the parameters drawn, a step moves one by {here} of its size"),
    "smallest_gradient": (smallest_gradient, "In the median, the gradient norms of the parameters drawn are {here}, "
                          "from the smallest to the largest"),
    "spread_of_outputs": (spread_of_outputs, "In the median, the standard deviations of the outputs drawn are {here}"),
    "not_in_optimizer": (not_in_optimizer, "The optimizer lacks {here}"),
    "frozen": (frozen, "{here} are frozen"),
    "unmoved": (unmoved, "In the run, {here} stayed exactly as they were"),
    "last_rate": (last_rate, "At the end of the run, the learning rate is {here}"),
    "gradients_over_time": (gradients_over_time, "The largest gradient norm drawn is {here}"),
    "first_loss": (first_loss, "The first loss is {here}"),
    "first_numbers": (first_numbers, "The first numbers of two batches are {here} in the other"),
    "range_of_inputs": (range_of_inputs, "The inputs of the first batch go from {here}"),
    "eval_twice": (eval_twice, "In eval mode, the same batch has the losses {here} when it is asked twice"),
    "train_and_eval": (train_and_eval, "The same batch has the losses {here} in train mode and in eval mode"),
    "bad_numbers": (bad_numbers, "{here} are NaN or infinite"),
    "with_other_inputs": (with_other_inputs, "After the run, the first batch has the losses {here} with its own inputs "
                          "and with those of other samples"),
    "with_other_targets": (with_other_targets, "After the run, the first batch has the losses {here} with its own "
                           "targets and with those of other samples"),
}


def in_words(name: str, patient: dict, twin: dict | None) -> str:
    "What was measured in the patient and in its healthy twin, if it has one."
    measure, sentence = MEASURES[name]
    here = measure(patient).replace("nan", "NaN")
    said = sentence.format(here=here)
    said = said[0].upper() + said[1:]
    if twin is None: return f"{said}."
    there = measure(twin).replace("nan", "NaN")
    return f"{said}. In the repaired program{', it is the same' if here == there else f': {there}'}."
