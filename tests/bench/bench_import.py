"""How long an import takes when torch is imported already: with bytecode, and without, as after an installation."""
import subprocess
import sys
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

IMPORTS = {
    "hooklab": "from hooklab.all import *",
    "TorchHook": "import torchhook",
    "fastai": "from fastai.callback import hook",
    "torchvision": "from torchvision.models import feature_extraction",
    "nnsight": "import nnsight",
}
# Bytecode is read and written below a folder of our own, so that nothing depends on what ran before on this machine.
CODE = """
import sys, torch
from time import process_time
sys.pycache_prefix, sys.dont_write_bytecode = sys.argv[1], sys.argv[2] == "read only"
start = process_time()
{}
print(process_time() - start)
"""


def milliseconds(line: str, folder: Path, may_write: bool = False) -> float:
    "What an import takes in a new process, with the bytecode of a folder."
    write = "write" if may_write else "read only"
    python = [sys.executable, "-W", "ignore", "-c", CODE.format(line), folder, write]
    return 1000*float(subprocess.check_output(python, text=True).splitlines()[-1])


def measure(rounds: int = 5) -> dict:
    with TemporaryDirectory() as folder:
        there, empty = Path(folder, "there"), Path(folder, "empty")
        for line in IMPORTS.values(): milliseconds(line, there, may_write=True)
        found = {}
        what = "import after torch"
        for title, bytecode in ((f"{what}, in ms", there), (f"{what} without bytecode, in ms", empty)):
            times = {name: [] for name in IMPORTS}
            for _ in range(rounds):
                for name, line in IMPORTS.items(): times[name].append(milliseconds(line, bytecode))
            found[title] = {name: [round(t, 1) for t in (median(ts), *quantiles(ts, n=4)[::2])]
                            for name, ts in times.items()}
    return found
