"""What a change costs: prices of the working tree and of another commit, measured in turns, in one run.

    python -m tests.bench against COMMIT hook stats              these benches, five rounds
    python -m tests.bench against COMMIT hook --rounds 9 --json FILE
    python -m tests.bench against COMMIT first_steps mlp gcn     of this bench only these loops

Each round measures both, each in a fresh process, one time this one first and one time the other. The bench is the one
of the working tree; only `hooklab` is the commit's. A price has changed where it did so in the same direction in every
round, and by more than what does not depend on hooklab: the plain work, and other libraries."""
import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

from .bars import bar_of, beside

ROOT = Path(__file__).parents[2]
NO_PRICE = "percent", "cases", "megabytes", "milliseconds a step"  # in the title of a table, or the name of a row
OTHERS = ("plain", "fastai", "TorchHook", "torchhook", "torchinfo", "torchlens", "TorchLens", "nnsight", "torchvision",
          "torch-audit", "DebugMode", "Ray", "raw hooks")  # a row or table of one of these does not depend on hooklab
BENCHES = sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))
RUN = "import importlib, json, sys; print(json.dumps(importlib.import_module(sys.argv[1]).measure(*sys.argv[2:])))"


class Price(NamedTuple):
    "One price: how it was before and after in each round."
    title: str
    row: str
    before: list[float]
    after: list[float]
    bar: float | None = None

    @property
    def ratios(self) -> list[float]: return [b/a for a, b in zip(self.before, self.after)]

    @property
    def depends_on_hooklab(self) -> bool: return not (self.row.startswith(OTHERS) or self.title.startswith(OTHERS))

    @property
    def change(self) -> float:
        "By which factor it has surely changed: the smallest change of all rounds, or 1 where they do not agree."
        low, high = min(self.ratios), max(self.ratios)
        return low if low > 1 else high if high < 1 else 1.


def asked_for(words: list[str]) -> list[tuple[str, list[str]]]:
    "Each bench that is named, with the parts of it that are named after it."
    found = []
    for word in words:
        if word in BENCHES or not found: found.append((word, []))
        else: found[-1][1].append(word)
    return found


def prices(figures: dict) -> Iterator[tuple[str, str, float]]:
    "The prices in what a bench has measured: its title, the row, and the median."
    for title, rows in figures.items():
        if not isinstance(rows, dict) or any(word in title for word in NO_PRICE): continue
        for row, (middle, *_) in rows.items():
            if middle and not any(word in row for word in NO_PRICE): yield title, row, middle


def unpack(commit: str, folder: Path):
    "The package of a commit, beside the benches of the working tree."
    archive = subprocess.run(["git", "archive", commit, "hooklab"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as tar: tar.extractall(folder, filter="data")
    for name in ("tests", "settings.ini"): (folder/name).symlink_to(ROOT/name)


def measured(tree: Path, bench: str, *parts: str) -> dict[tuple[str, str], float]:
    "The prices of a bench, or of parts of it, with the package of this tree."
    environment = os.environ | {"PYTHONPATH": f"{tree}{os.pathsep}{tree/'tests'}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-W", "ignore", "-c", RUN, f"tests.bench.bench_{bench}", *parts]
    done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return {(title, row): price for title, row, price in prices(json.loads(done.stdout.splitlines()[-1]))}


def compared(commit: str, bench: str, rounds: int, parts: list[str] = ()) -> list[Price]:
    "The prices that both have."
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder)
        unpack(commit, other)
        found = {ROOT: [], other: []}
        for turn in range(rounds):
            for tree in (other, ROOT) if turn % 2 else (ROOT, other): found[tree].append(measured(tree, bench, *parts))
    common = [key for key in found[ROOT][0] if key in found[other][0]]
    return [Price(*key, *([run[key] for run in found[tree]] for tree in (other, ROOT)), bar_of(bench, *key))
            for key in common]


def noise_of(found: list[Price]) -> float:
    "The largest change of what does not depend on hooklab, as a factor above 1."
    return max([max(p.change, 1/p.change) for p in found if not p.depends_on_hooklab], default=1.)


def verdict(price: Price, noise: float) -> str:
    if not price.depends_on_hooklab: return ""
    return "dearer" if price.change > noise else "cheaper" if price.change < 1/noise else ""


def line(price: Price, noise: float) -> str:
    low, middle, high = quantiles(price.ratios, n=4) if len(price.ratios) > 1 else price.ratios*3
    before, after = median(price.before), median(price.after)
    return (f"  {price.row:<40} {before:9.3f} {after:9.3f} {middle:8.3f}   [{low:.3f} to {high:.3f}]  "
            f"{verdict(price, noise):<8} {beside(after, price.bar)}").rstrip()


def main(*options: str):
    parser = argparse.ArgumentParser(prog="python -m tests.bench against")
    parser.add_argument("commit")
    parser.add_argument("benches", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked, tables = parser.parse_args(options), {}
    for bench, parts in asked_for(asked.benches):
        found = compared(asked.commit, bench, asked.rounds, parts)
        noise, title = noise_of(found), None
        rows = [price._asdict() | {"verdict": verdict(price, noise)} for price in found]
        tables[bench] = {"noise": noise, "prices": rows}
        print(f"\n{bench}: before, after, ratio [quartiles]; noise (what does not depend on hooklab): {noise:.3f}")
        for price in found:
            if price.title != title: print(price.title)
            title = price.title
            print(line(price, noise), flush=True)
        if asked.json: asked.json.write_text(json.dumps(tables, indent=1) + "\n")
