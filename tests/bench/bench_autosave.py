"What `autosave` costs, and what is left of runs that are killed."
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from torchvision.models import resnet18

import hooklab as hl
from tests.bench.measure import ratios
from tests.support import killed, sharded

KILLS = 100


def tiny_llama(): return sharded.llama(), lambda model: sharded.loss_of(model, sharded.words(0))


def small_resnet():
    torch.manual_seed(0)
    x = torch.randn(8, 3, 64, 64)
    return resnet18(num_classes=10), lambda model: model(x).square().mean()


WORKLOADS = ("the tiny Llama", tiny_llama, 500), ("resnet18 on 8 images of 64 by 64", small_resnet, 60)


def training(workload, n, folder=None, seconds=None):
    "`n` steps of a run that is recorded for a diagnosis, and saved from time to time."
    model, loss = workload()
    optimizer = torch.optim.SGD(model.parameters(), .01)
    stats = hl.ActivationStats.for_diagnosis()
    if seconds is not None: stats.autosave(Path(folder)/"run.safetensors", seconds)
    stats.on(model, optimizer)
    def steps():
        for _ in range(n):
            value = loss(model)
            value.backward()
            optimizer.step()
            optimizer.zero_grad()
            stats.step(value)
    steps.stats = stats
    return steps


def one_copy(workload, rows, folder):
    "How long the loop waits for a copy of a record with so many rows, and how long its thread then writes."
    train = training(workload, 1)
    stats = train.stats
    for _ in range(120): train()
    for series in (*stats.histories.values(), stats.log):
        # what was recorded is repeated, because the size alone counts
        tables = series.table() if series is stats.log else series.tables()
        times = -(-rows//len(tables))
        series.fill(list(range(rows)), tables.repeat(times, *[1]*(tables.dim() - 1))[:rows])
    waited, wrote = [], []
    file = Path(folder)/"run.safetensors"
    for _ in range(9):
        start = time.perf_counter()
        noted = stats.snapshot()
        waited.append(time.perf_counter() - start)
        start = time.perf_counter()
        noted.save(file)
        wrote.append(time.perf_counter() - start)
    stats.remove()
    return {"rows": rows, "MB": round(file.stat().st_size/1e6, 1), "the loop waits, ms": round(1e3*median(waited), 1),
            "a thread writes, ms": round(1e3*median(wrote), 1), "waits, % of 60 s": round(100*median(waited)/60, 3)}


def measure():
    figures = {}
    with TemporaryDirectory() as folder:
        for title, workload, n in WORKLOADS:
            variants = {"saved each second": training(workload, n, folder, 1)}
            told = f"time of all threads in {n} recorded steps of {title}, in those that are not saved"
            figures[told] = ratios(training(workload, n), variants, 5)
            for f in variants.values(): f.stats.remove()
            figures[f"One copy of a run of {title}"] = [one_copy(workload, rows, folder) for rows in (100, 4096)]
        command = [sys.executable, killed.__file__, folder, str(KILLS), "7"]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout)
    figures["Runs that are killed"] = [{
        "killed": len(found), "cannot be read": sum("error" in run for run in found),
        "not the last copy or the one before": sum(bool(killed.wrong(run)) for run in found),
        "steps lost, median": median(run["step"] - run["read"] for run in found),
        "killed while a copy was written": sum(run["begun"] != run["ended"] for run in found)}]
    return figures
