"""How long a lesson takes: its words, its code and its exercises. Run as a program, it writes that into the lessons."""
import json
import re
from pathlib import Path

WORDS, LINES = 200, 5  # that a reader takes in within a minute; code that is folded is not counted


def source(cell: dict) -> str: return "".join(cell["source"])


def times(cells: list[dict]) -> tuple[int, int]:
    "Minutes to read, and minutes of exercises."
    words = lines = exercises = 0
    for text in map(source, cells):
        exercises += sum(map(int, re.findall(r" · difficulty \d of 3 · (\d+) minutes$", text, re.M)))
    for cell in cells:
        text = source(cell)
        if "### Exercise" in text: break
        if cell["cell_type"] == "markdown": words += len(re.findall(r"\w+", text))
        elif "#| code-fold: true" not in text and "#| hide" not in text:
            lines += sum(bool(line.strip()) and not line.startswith("#|") for line in text.splitlines())
    return round(words/WORDS + lines/LINES), exercises


def write(path: Path):
    nb = json.loads(path.read_text(encoding="utf-8"))
    read, exercises = times(nb["cells"])
    for cell in nb["cells"][:3]:
        times_now = f"{read} minutes to read · {exercises} minutes of exercises · "
        new = re.sub(r"^\d+ minutes to read · \d+ minutes of exercises · ", times_now, source(cell), flags=re.M)
        cell["source"] = new.splitlines(True)
    path.write_text(json.dumps(nb, sort_keys=True, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for path in sorted((Path(__file__).resolve().parents[2]/"nbs"/"lessons").glob("[0-9]*.ipynb")): write(path)
