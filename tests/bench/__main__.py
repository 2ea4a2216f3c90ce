"""Measures what the files bench_*.py of this folder measure, or those that are named, and keeps the figures in results/.

    python -m tests.bench [hook import …]
    python -m tests.bench diagnose --seed 1      what begins with a dash, and all that follows, goes to the file
    python -m tests.bench first_steps mlp gcn    so does a word that names no file: a part is measured, and not kept
    python -m tests.bench against COMMIT hook    prices of the working tree and of a commit, in turns
    python -m tests.bench bars                   the goals that figures must not exceed, beside those in results/

Each figure is a median with its quartiles, unless its title says otherwise; a list is a table or lines. Those of a file go to results/NAME.json, with the machine and the versions."""
import importlib
import platform
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from tests.bench import against, bars


def processor() -> str:
    "The name of the processor, which `platform` does not tell on Linux."
    info = Path("/proc/cpuinfo")
    if not info.exists(): return platform.processor()
    return next((line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")), platform.machine())


torch.set_num_threads(1)
setting = {"processor": processor(), "system": platform.system(), "python": platform.python_version()}
for package in ("torch", "torchvision", "timm", "transformers", "hooklab", "fastai", "nnsight", "torchhook", "torchinfo", "torchlens", "ray"):
    with suppress(PackageNotFoundError): setting[package] = version(package)  # few files compare with all of them
bars.RESULTS.mkdir(exist_ok=True)
asked = sys.argv[1:]
if asked[:1] == ["against"]:
    against.main(*asked[1:])
    sys.exit()
if asked == ["bars"]: sys.exit(bars.main())
cut = next((i for i, word in enumerate(asked) if word.startswith("-")), len(asked))
for name, parts in against.asked_for(asked[:cut] or against.BENCHES):
    figures = importlib.import_module(f"tests.bench.bench_{name}").measure(*parts, *asked[cut:])
    if figures is None: continue
    for title, rows in figures.items():
        print(f"\n{title}")
        if isinstance(rows, list):  # a table whose rows are dicts, or lines of text
            for row in rows:
                print("  " + (", ".join(f"{k} {v}" for k, v in row.items()) if isinstance(row, dict) else row))
            continue
        for row, (middle, low, high) in rows.items():
            bar = bars.beside(middle, bars.bar_of(name, title, row))
            print(f"  {row:<12} {middle:8.3f}   [{low:.3f} to {high:.3f}]  {bar}".rstrip())
    if not parts: bars.keep(name, setting, figures)
