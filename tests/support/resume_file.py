"A run whose functions a new process can import, with a state that is the same in all runs of a process."
import functools
import os
import pickle
import subprocess
import sys

import torch
from torch import nn


@functools.cache
def salt() -> list[float]: return [int.from_bytes(os.urandom(4), "little")/2**32]


def make():
    torch.manual_seed(0)
    return {"model": nn.Linear(4, 2), "n": 0}


def step(run):
    run["n"] += 1
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(run["n"]))
    loss = run["model"](x + salt()[0]).square().mean()
    run["model"].zero_grad()
    loss.backward()
    with torch.no_grad():
        for p in run["model"].parameters(): p -= .1*p.grad
    return loss


def save(run): return {"model": run["model"].state_dict(), "n": run["n"], "salt": salt()[0]}


def load(run, saved):
    run["model"].load_state_dict(saved["model"])
    run["n"] = saved["n"]


def load_all(run, saved):
    load(run, saved)
    salt()[0] = saved["salt"]


def load_absent(run, saved): return saved["absent"]


def in_another_process(values: bytes) -> list[bytes]:
    "Marks of values that another process makes, with another seed of hashes."
    code = ("import pickle, sys; from hooklab.checkpoints.marks import mark_of; "
            "values = pickle.load(sys.stdin.buffer); "
            "sys.stdout.buffer.write(pickle.dumps([mark_of(value) for value in values]))")
    done = subprocess.run([sys.executable, "-c", code], input=values, capture_output=True, check=True,
                          env={**os.environ, "PYTHONHASHSEED": "77"})
    return pickle.loads(done.stdout)
