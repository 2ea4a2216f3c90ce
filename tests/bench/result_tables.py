"""What the pages "How right …" make of the results in this folder: tables, and percentages with their intervals."""
import json
from pathlib import Path

from IPython.display import HTML

RESULTS = Path(__file__).with_name("results")


def figures_of(name: str) -> dict: return json.loads((RESULTS/f"{name}.json").read_text(encoding="utf-8"))["figures"]


def setting_of(name: str) -> dict[str, str]:
    "The versions with which it was measured."
    return json.loads((RESULTS/f"{name}.json").read_text(encoding="utf-8"))["setting"]


def first_looks() -> dict[str, dict]:
    "{set of programs: the figures of the day when tools saw it first}."
    looks = json.loads((RESULTS/"first_looks.json").read_text(encoding="utf-8"))
    return {name: look["figures"] for name, look in looks.items()}


def title_of(name: str) -> str: return name.replace("_", " ")


def rate(percent: float) -> str: return f"{percent:.{0 if percent >= 9.95 or not percent else 1}f}%"


def percent(three: list[float]) -> str:
    "A percentage with its interval."
    return f"{rate(three[0])} ({three[1]:.0f} to {three[2]:.0f})"


def cell(three: list[float]) -> str:
    "The same for a table: lines break before the interval."
    return percent(three).replace(" to ", "\u00a0to\u00a0")


def table(heads: list[str], rows: list[list], summary: str = "") -> HTML:
    "Rows of text and numbers for the page, folded if there is a summary."
    head = "".join(f'<th scope="col">{text}</th>' for text in heads)
    body = "".join(f'<tr><th scope="row" style="font-weight: 400">{first}</th>'
                   f'{"".join(f"<td>{text}</td>" for text in rest)}</tr>' for first, *rest in rows)
    whole = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return HTML(f"<details><summary>{summary}</summary>{whole}</details>" if summary else whole)


class PlantedRuns:
    "Runs with planted faults and healthy runs, in sets: `figures` is {set: its figures}."
    def __init__(self):
        self.figures = {"first": {}}  # figures of the first set have no prefix
        for what, rows in figures_of("diagnose").items():
            name, _, rest = what.rpartition(" set: ")
            self.figures.setdefault(name or "first", {})[rest] = rows
        self.cases = {name: {what: round(n[0]) for what, n in of_set["cases"].items()}
                      for name, of_set in self.figures.items()}
        self.audit = self.figures["first"].get("torch-audit, percent")

    def of_all(self, key: str, n) -> tuple[list[float], int]:
        "Over all sets: the percentage with its 95% interval, and the number of runs. `n(cases)` is a set's."
        numbers = {name: n(cases) for name, cases in self.cases.items()}
        hits = sum(round(of_set["hooklab, percent"][key][0]/100*numbers[name]) for name, of_set in self.figures.items())
        of, z = sum(numbers.values()), 1.96
        middle = hits/of
        center, half = middle + z*z/(2*of), z*(middle*(1 - middle)/of + z*z/(4*of*of))**.5  # Wilson's interval
        return [100*middle, *(100*(center + sign*half)/(1 + z*z/of) for sign in (-1, 1))], of

    def cause_named(self): return self.of_all("harmed: cause", lambda cases: cases["faults"] - cases["harmless"])

    def false_alarms(self): return self.of_all("false alarms, any", lambda cases: cases["healthy"])

    def by_kind(self, part: str) -> dict[str, dict]:
        "{kind: {set: its row}}."
        found = {}
        for name, of_set in self.figures.items():
            for row in of_set[part]: found.setdefault(row["kind"], {})[name] = row
        return found

    def print_list(self, title: str):
        "A list from the results of each set, each line in one."
        for name, of_set in self.figures.items():
            print(f"{title}, {name} set: {len(of_set[title]) or 'none'}")
            for line in of_set[title]: print(f"  {line}")
