"""Records the cases of "Find the bug": what one sees in real programs with a fault, and in their repaired twins.

    make cases                                         all of them; each is written to nbs/cases/NAME.json
    python -m tests.bench.record_cases PART_OF_NAME …

The words of the cases are in case_list_a.py and case_list_b.py; the programs are in programs/. The two texts of a
program that a case shows are exactly what runs here (case_texts.py), and all pictures, tables and numbers in the
replies come from these runs (case_looks.py, case_choices.py). Seconds on two cores: about ten a case."""
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType

import torch

from tests.bench import case_list_a, case_list_b
from tests.bench.bars import RESULTS
from tests.bench.bench_programs import VERDICT, Said, alone, name_of
from tests.bench.case_choices import in_words
from tests.bench.case_looks import looks_of, optimizers_of
from tests.bench.case_texts import lines_at_fault, text_of
from tests.bench.programs import HEALTHY, SETS, programs

VERSION = 1
CASES = [*case_list_a.CASES, *case_list_b.CASES]
FOLDER = Path(__file__).resolve().parents[2]/"nbs/cases"
MOST_BYTES = 40_000
FINE = "Nothing is wrong: it trains as it should."


@cache
def programs_by_name() -> dict[str, tuple[str, ModuleType]]:
    return {name_of(p): (s, p) for s in (*SETS, *HEALTHY) for p in programs(s)}


def graded(program: ModuleType, healthy: bool, what: str, layers: list[str]) -> str:
    "What a finding is for a program: its cause, a true symptom or place, something else, or a false alarm."
    if healthy: return "alarm"
    said = Said(program, False, {VERDICT: [(what, "", tuple(layers))]})
    return "cause" if said.names_cause((VERDICT,)) else "symptom or place" if said.is_true((VERDICT,)) else "wrong"


def first_look(set_of: str, name: str) -> list[list[str]] | None:
    "What was said of a program before any rule was written with it in view; None where that was never the case."
    rows = json.loads((RESULTS/"looks.json").read_text(encoding="utf-8")).get(set_of)
    if rows is None: return None
    row = next(row for row in rows if row["program"] == name and row["twin"] == (set_of in HEALTHY))
    return [[sure, what, grade] for tool, what, sure, grade in row["findings"] if tool == "verdict"]


def todays(looks: dict, program: ModuleType, healthy: bool) -> list[list[str]]:
    "What is said of it today, in two batches and of its run; what both say is said once."
    rows = [[sure, what, graded(program, healthy, what, layers)] for tool in ("preflight", "diagnose")
            for sure, what, _, layers in looks[tool] if sure != "error"]
    return [*{what: row for row in reversed(rows) for what in [row[1]]}.values()][::-1]


def texts_of(set_of: str, program: ModuleType) -> dict[str, str]:
    "What is shown of a program: as it was reported, and repaired. A healthy one has no other text."
    if set_of in HEALTHY: return {"patient": text_of(program, True)}
    return {"patient": text_of(program, False), "twin": text_of(program, True)}


def places(case: dict, texts: dict[str, str]) -> list[int]:
    "The lines that count as the place of the fault: those that the repair changes, or that could be changed as well."
    lines = texts["patient"].splitlines()
    found = {*lines_at_fault(texts["patient"], texts["twin"])}
    for part in case.get("also", ()):
        there = [number for number, line in enumerate(lines, 1) if part in line]
        if not there: raise ValueError(f"{case['program']}: no line has {part!r}")
        found |= {*there}
    return sorted(found)


def scored(looks: dict[str, dict]) -> str:
    here, there = (looks[whose]["score"] for whose in ("patient", "twin"))
    return (f"On data that was held back, its error is {here}, and that of the repaired program {there}: lower is "
            "better.")


def reply(measure: str, texts: dict[str, str], looks: dict[str, dict]) -> str:
    "What is answered to a wrong choice: what was measured, or that the line it means works in the repaired program."
    if not measure.startswith("="): return in_words(measure, looks["patient"], looks.get("twin"))
    part, sound = measure.removeprefix("="), looks.get("twin", looks["patient"])
    if not all(part in text for text in texts.values()): raise ValueError(f"not in both texts: {part}")
    if "twin" not in looks: return f"So it is, and it does no harm: on data held back, the error is {sound['score']}."
    same = [line for line in texts["patient"].splitlines() if part in line and line in texts["twin"].splitlines()]
    where = f"Line {texts['patient'].splitlines().index(same[0]) + 1} is" if same else f"“{part}” is"
    return (f"{where} the same in the repaired program, whose error is {sound['score']}, and not "
            f"{looks['patient']['score']}.")


def choices_of(case: dict, texts: dict[str, str], looks: dict[str, dict], healthy: bool) -> list[dict]:
    "What one can choose, and what is answered: to a wrong choice, what was recorded in the patient and in its twin."
    found = [{"words": case["right"], "right": True, "reply": case["why"]}]
    for words, measure in case["wrong"]:
        found.append({"words": words, "right": False, "reply": reply(measure, texts, looks)})
    if not healthy: found.append({"words": FINE, "right": False, "reply": scored(looks)})
    return sorted(found, key=lambda choice: (choice["words"] == FINE, choice["words"]))  # the order tells nothing


def told(case: dict, set_of: str, program: ModuleType, looks: dict[str, dict]) -> dict:
    "All that a page says, beside the looks."
    healthy, texts = set_of in HEALTHY, texts_of(set_of, program)
    said = {"first": first_look(set_of, case["program"]), "today": todays(looks["patient"], program, healthy)}
    words = {key: case[key] for key in ("title", "task", "complaint", "level", "quiet", "why", "decides", "lesson")}
    return {"version": VERSION, "name": case["program"], **words, "healthy": healthy, "source": program.SOURCE,
            "year": program.YEAR, "texts": texts, "lines": [] if healthy else places(case, texts),
            "choices": choices_of(case, texts, looks, healthy), "said": said}


def recorded(case: dict, set_of: str, program: ModuleType) -> dict:
    "One case, with all that its page shows."
    looks = {whose: looks_of(text) for whose, text in texts_of(set_of, program).items()}
    with alone(0): optimizer = program.build(set_of in HEALTHY).optimizer
    return {**told(case, set_of, program, looks), "optimizers": len(optimizers_of(optimizer)), "looks": looks}


def record(case: dict) -> int:
    "Records a case and writes it; returns how many bytes it has."
    found = recorded(case, *programs_by_name()[case["program"]])
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    FOLDER.mkdir(exist_ok=True)
    (FOLDER/f"{case['program']}.json").write_text(text + "\n", encoding="utf-8")
    return len(text.encode())


def main(parts: list[str]):
    chosen = [case for case in CASES if not parts or any(part in case["program"] for part in parts)]
    programs_by_name()  # once for all processes
    torch.set_num_threads(1)
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("fork")) as pool:
        running = {pool.submit(record, case): case["program"] for case in chosen}
        for done in as_completed(running):
            over = " TOO LARGE" if done.result() > MOST_BYTES else ""
            print(f"{running[done]}: {done.result():,} bytes{over}", flush=True)


if __name__ == "__main__": main(sys.argv[1:])
