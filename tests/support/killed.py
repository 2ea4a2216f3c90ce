"""Runs that are killed while their record is saved: `python killed.py FOLDER COUNT SEED` prints what is left of each.

Each run is a forked process, so that a hundred of them need one import of torch. It writes to a log what it has done,
and to what is written that way a kill does nothing."""
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn

import hooklab as hl
from hooklab.stats.autosave import Autosave


class Logged(Autosave):
    "Notes in a log when a copy is begun and ended, and the last step that it has."
    share = 1.  # as often as the disk allows
    log = None

    def write(self, noted, ready, began):
        self.say("begun", noted.steps[-1])
        super().write(noted, ready, began)
        self.say("failed" if self.error else "ended", noted.steps[-1])

    def say(self, what, step): os.write(self.log, f"{what} {step} {time.monotonic()}\n".encode())


def train_forever(file: Path, seconds: float):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=.01)
    stats = hl.ActivationStats.for_diagnosis()
    stats.saver = saver = Logged(stats, file, seconds)
    saver.log = os.open(file.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    stats.on(model, optimizer)
    for step in range(10**9):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 8)).square().mean()
        loss.backward()
        optimizer.step()
        stats.step(loss)
        saver.say("step", step)


def killed(file: Path, rng: random.Random) -> dict:
    "A run is killed at a random moment: what is known of it, and what its file has."
    seconds = rng.choice([0, .02, .1])
    child = os.fork()
    if child == 0:
        try: train_forever(file, seconds)
        finally: os._exit(1)
    log = file.with_suffix(".log")
    while not (log.exists() and b"ended" in log.read_bytes()): time.sleep(.005)  # it trains, and has saved once
    time.sleep(rng.uniform(0, .4))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    said = [line.split() for line in log.read_text().splitlines()]
    last = {what: int(step) for what, step, _ in said}
    times = {(what, int(step)): float(at) for what, step, at in said}
    found = {"interval": seconds, "failed": "failed" in last}
    found |= {what: last[what] for what in ("begun", "ended", "step")}
    try:
        stats = hl.ActivationStats.load(file)
        diagnosis = str(hl.diagnose(stats))
        found |= {"read": stats.steps[-1], "steps": len(stats.steps), "diagnosed": bool(diagnosis)}
        found["lost_seconds"] = times["step", last["step"]] - times["begun", stats.steps[-1]]
        begun = [times[what, step] for what, step in times if what == "begun"]
        ends = [*begun[1:], times["step", last["step"]]]
        found["between_copies"] = max(end - start for start, end in zip(begun, ends))
    except Exception as e: found["error"] = f"{type(e).__name__}: {e}"
    return found


def wrong(found: dict) -> str:
    "What should not be, of one killed run; empty if all is well."
    if "error" in found: return f"the record cannot be read: {found['error']}"
    if found["failed"]: return "a copy failed"
    if found["read"] not in (found["ended"], found["begun"]): return "the file is not the last copy"
    return "" if found["diagnosed"] else "no diagnosis"


def warm_up(folder: Path):
    "Import here, once, what each run would import. A backward pass here would keep the forked ones from theirs."
    model = nn.Sequential(nn.Linear(8, 2))
    file = folder/"warm.safetensors"
    optimizer = torch.optim.SGD(model.parameters(), lr=.01)
    with hl.ActivationStats.for_diagnosis().autosave(file).on(model, optimizer) as stats:
        model(torch.randn(4, 8))
        stats.step(1.)
    str(hl.diagnose(hl.ActivationStats.load(file)))


def kills(folder: Path, count: int, seed: int) -> list[dict]:
    rng = random.Random(seed)
    warm_up(folder)
    return [killed(folder/f"run{i}.safetensors", rng) for i in range(count)]


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(kills(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
