"""How long `import hooklab` with all its names takes when torch is imported already."""
import subprocess
import sys
from statistics import median, quantiles

CODE = """
import torch
from time import perf_counter
start = perf_counter()
from hooklab.all import *
print(perf_counter() - start)
"""


def measure():
    times = [1000*float(subprocess.check_output([sys.executable, "-c", CODE], text=True)) for _ in range(11)]
    return {"import hooklab after torch, in ms": {"hooklab": [round(t, 1) for t in (median(times), *quantiles(times, n=4)[::2])]}}
