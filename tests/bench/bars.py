"""Bars: goals that figures of the benches must not exceed.

    python -m tests.bench bars   the figures of results/ that have a bar; bars that have changed here are written there

A bar is that of a row. That of "each" is for all rows of a table that have none of their own, without the median."""
import json
from pathlib import Path

RESULTS = Path(__file__).parent/"results"
TINY = "1,000 tiny layers, the first 30 steps, to those without a record"
FIND_NAN = "a training step under find_nan, to one without: {}"
BARS = {
    "stats": {
        "training step of a small CNN, to one without statistics": {"hooklab": 1.18},
        "training step of an MLP of 11 layers, to one without statistics": {"hooklab": 1.30},
        "training step of resnet18, to one without statistics": {"hooklab": 1.03},
        "what hooklab adds, as a fraction of what fastai adds": {"each": .62}},
    "first_steps": {
        "hooklab, for a diagnosis: first 100 steps": {"median": 1.18, "each": 1.5, "mlp": 2.2},
        "hooklab, for a diagnosis: steps 100 to 500": {"median": 1.03, "each": 1.15, "mlp": 1.5}},
    "tiny_layers": {TINY: {"hooklab, for a diagnosis": 2.5}},
    "find_nan": {FIND_NAN.format(loop): {"hooklab": bar} for loop, bar in {"mlp": 2., "vit": 1.1, "gpt": 1.1}.items()},
    "compiled": {f"training step of {net} in compiled code, to one without statistics": {
        "hooklab": 1.03, "hooklab, samples of all layers": 1.03} for net in ("resnet18", "a GPT")},
    "hook": {
        "attach and remove 1,000 forward hooks, to raw torch": {"hooklab": 1.61},
        "call 1,000 hooks that store a detached copy, without gradients, to raw hooks": {"hooklab": 1.14},
        "call 1,000 hooks that store a detached copy, with gradients, to raw hooks": {"hooklab": 1.27}},
    "summary": {"summary of resnet18, to one pass": {"hooklab": 1.15}},
    "import": {"import after torch, in ms": {"hooklab": 40}},
}


def bar_of(bench: str, title: str, row: str) -> float | None:
    bars = BARS.get(bench, {}).get(title, {})
    return bars.get(row, None if row == "median" else bars.get("each"))


def bars_of(bench: str, figures: dict) -> dict[str, dict[str, float]]:
    "{title: {row: bar}} of the figures that have one."
    found = {}
    for title, rows in figures.items():
        bars = {row: bar_of(bench, title, row) for row in rows} if isinstance(rows, dict) else {}
        bars = {row: bar for row, bar in bars.items() if bar is not None}
        if bars: found[title] = bars
    return found


def beside(middle: float, bar: float | None) -> str:
    "What is written after a figure."
    if bar is None: return ""
    return f"above its bar of {bar:g}" if middle > bar else f"bar {bar:g}"


def keep(bench: str, setting: dict, figures: dict):
    "Write the figures of a bench to the results, with their bars."
    bars = bars_of(bench, figures)
    kept = {"setting": setting, "figures": figures} | ({"bars": bars} if bars else {})
    (RESULTS/f"{bench}.json").write_text(json.dumps(kept, indent=1) + "\n")


def main():
    for bench in BARS:
        found = json.loads((RESULTS/f"{bench}.json").read_text())
        keep(bench, found["setting"], found["figures"])
        for title, bars in bars_of(bench, found["figures"]).items():
            print(f"\n{title}")
            for row, bar in bars.items():
                middle = found["figures"][title][row][0]
                print(f"  {row:<40} {middle:8.3f}   {beside(middle, bar)}")
