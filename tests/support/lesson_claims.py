"""With how many other seeds a lesson was tried, as it says at its end. As a program, it writes that into the lessons.

`python -m tests.bench claims` tries them, and keeps what it finds in tests/bench/results/claims.json."""
import ast
import hashlib
import json
import re
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
RESULTS = REPO/"tests"/"bench"/"results"/"claims.json"
TITLE = "lessons with other seeds, with how many all asserts hold"
STORED = {"16-text": "the model is stored", "20-induction": "the three networks are stored, and the texts are drawn"}
WORDS = "none", "one", "two", "three", "four", "five"


def source(cell: dict) -> str: return "".join(cell["source"])


def claimed(cells: list[dict]) -> str: # Changes when an assertion does
    "A digest of what a lesson asserts before its exercises."
    found = []
    for cell in cells:
        if "### Exercise" in source(cell): break
        if cell["cell_type"] != "code": continue
        code = "".join(line for line in source(cell).splitlines(True) if not line.startswith("%"))
        found += [ast.unparse(node) for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Assert)]
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:12]


def tried() -> dict[str, dict]:
    "By the name of the lesson: with how many seeds it was tried, and with how many all its claims held."
    if not RESULTS.exists(): return {}
    return {row["lesson"]: row for row in json.loads(RESULTS.read_text(encoding="utf-8"))["figures"][TITLE]}


def sentence(row: dict) -> str:
    "What the lesson says of it."
    kept = f" ({STORED[row['lesson']]})" if row["lesson"] in STORED else ""
    if not row["seeds"]: return f"**Tried with** its own seeds only{kept}."
    which = "all" if row["hold"] == row["seeds"] else WORDS[row["hold"]]
    how_many = WORDS[row["seeds"]]
    return f"**Tried with** {how_many} other seeds{kept}: every claim on this page held for {which} of them."


def write(path: Path, row: dict):
    nb = json.loads(path.read_text(encoding="utf-8"))
    last = [cell for cell in nb["cells"] if cell["cell_type"] == "markdown"][-1]
    without = re.sub(r"^\*\*Tried with\*\* .+\n\n", "", source(last), flags=re.M)
    last["source"] = without.replace("**Read more:**", f"{sentence(row)}\n\n**Read more:**", 1).splitlines(True)
    path.write_text(json.dumps(nb, sort_keys=True, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for name, row in tried().items(): write(REPO/"nbs"/"lessons"/f"{name}.ipynb", row)
