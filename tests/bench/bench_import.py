"""How long an import takes when torch is imported already."""
import subprocess
import sys
from statistics import median, quantiles

IMPORTS = {"hooklab": "from hooklab.all import *", "TorchHook": "import torchhook", "fastai": "from fastai.callback import hook",
           "torchvision": "from torchvision.models import feature_extraction", "nnsight": "import nnsight"}
CODE = """
import torch
from time import process_time
start = process_time()
{}
print(process_time() - start)
"""


def milliseconds(line): return 1000*float(subprocess.check_output([sys.executable, "-W", "ignore", "-c", CODE.format(line)], text=True))


def measure():
    times = {name: [] for name in IMPORTS}
    for _ in range(9):
        for name, line in IMPORTS.items(): times[name].append(milliseconds(line))
    return {"import after torch, in ms": {name: [round(t, 1) for t in (median(ts), *quantiles(ts, n=4)[::2])] for name, ts in times.items()}}
