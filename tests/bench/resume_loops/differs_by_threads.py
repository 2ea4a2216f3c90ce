"Samples are read by threads, and trained on in the order in which they happen to be ready."
import os
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

import torch
from torch import nn

from tests.bench.resume_loops import ORDER, but

WARM, STEPS, DIFFERS = 4, 6, True
STATES = {"model": ("model",), "sgd": ("sgd",), "next": ("next", *ORDER)}


def read(i):
    "A disk takes a while, and not always the same."
    time.sleep(os.urandom(1)[0]/256*2e-3)
    return torch.tensor([i % 7/7, i % 5/5, i % 3/3]), torch.tensor(float(i % 2))


class Online:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
        self.sgd = torch.optim.SGD(self.model.parameters(), .1, momentum=.5)
        self.next = 0

    def step(self, n=6):
        total = 0.
        with ThreadPoolExecutor(n) as pool:
            for done in as_completed([pool.submit(read, self.next + i) for i in range(n)]):
                x, y = done.result()
                loss = (self.model(x)[0] - y).square()
                self.sgd.zero_grad()
                loss.backward()
                self.sgd.step()
                total += loss.item()
        self.next += n
        return total/n


def make(): return Online()
def step(run): return run.step()


def save(run, without=()):
    return but({"model": run.model.state_dict(), "sgd": run.sgd.state_dict(), "next": run.next}, without)


def load(run, saved):
    if "model" in saved: run.model.load_state_dict(saved["model"])
    if "sgd" in saved: run.sgd.load_state_dict(saved["sgd"])
    run.next = saved.get("next", 0)
