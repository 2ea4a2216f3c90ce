"""A comparison does not hold the activations of two models in memory."""
import os
import subprocess
import sys

import pytest

SCRIPT = """
import copy, resource, sys, torch
from torch import nn
import hooklab.all as hl
torch.set_num_threads(1)
a = nn.Sequential(*[nn.Linear(64, 64) for _ in range(50)])
b, x = copy.deepcopy(a), torch.randn(40000, 64)
with torch.no_grad():
    b[20].weight.mul_(1.01)
    a(x)
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss/1024
before = peak()
assert hl.compare(a, b, x).first.a == "20"
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is measured in other units elsewhere")
def test_activations_are_held_less_than_once():
    environment = {"MALLOC_MMAP_THRESHOLD_": "65536"}  # memory that is freed goes back at once
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
    activations = 50*40000*64*4/2**20
    assert float(done.stdout) < activations, done.stdout
