"A cosine that restarts, moved by fractions of an epoch, and files in a folder."
import atexit
import itertools
import shutil
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts

from tests.bench.resume_loops import ORDER, but

WARM, STEPS = 13, 7
STATES = {"weights": ("net", "weight", "bias"), "sgd": ("sgd", "optimizer"), "cosine": ("cosine", "scheduler"),
          "epoch": ("epoch",), "batch": ("batch", *ORDER)}
SILENT = {"cosine"}  # each step tells it the epoch, from which it has all else
folder, numbers = [], itertools.count()


class Run:
    def __init__(self):
        x = torch.randn(50, 3, generator=torch.Generator().manual_seed(13))
        self.batches = [*zip(x.split(10), x.sin().sum(1, keepdim=True).split(10))]
        self.net = nn.Sequential(nn.Linear(3, 20), nn.Tanh(), nn.Linear(20, 1))
        self.sgd = torch.optim.SGD(self.net.parameters(), .2, momentum=.9)
        self.cosine = CosineAnnealingWarmRestarts(self.sgd, T_0=1, T_mult=2)
        self.epoch = self.batch = 0


def make(): return Run()


def step(run):
    x, y = run.batches[run.batch]
    loss = nn.functional.huber_loss(run.net(x), y)
    run.sgd.zero_grad()
    loss.backward()
    run.sgd.step()
    run.batch += 1
    run.cosine.step(run.epoch + run.batch/len(run.batches))
    if run.batch == len(run.batches): run.epoch, run.batch = run.epoch + 1, 0
    return loss.item()


def save(run, without=()):
    "The path of a new file."
    if not folder:
        folder.append(Path(tempfile.mkdtemp()))
        atexit.register(shutil.rmtree, folder[0])
    path = folder[0]/f"checkpoint-{next(numbers)}.pt"
    torch.save(but({"weights": run.net.state_dict(), "sgd": run.sgd.state_dict(), "cosine": run.cosine.state_dict(),
                    "epoch": run.epoch, "batch": run.batch}, without), path)
    return path


def load(run, saved):
    saved = torch.load(saved, weights_only=False)
    if "weights" in saved: run.net.load_state_dict(saved["weights"])
    if "sgd" in saved: run.sgd.load_state_dict(saved["sgd"])
    if "cosine" in saved: run.cosine.load_state_dict(saved["cosine"])
    run.epoch, run.batch = saved.get("epoch", 0), saved.get("batch", 0)
