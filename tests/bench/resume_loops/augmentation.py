"Images that are flipped by python's random and get noise by numpy's, both the states of the process."
import random

import numpy as np
import torch
from torch import nn

from tests.bench.resume_loops import NUMPY_RANDOM, ORDER, PYTHON_RANDOM, but

WARM, STEPS = 6, 5
STATES = {"cnn": ("cnn",), "optimizer": ("optimizer",), "python": PYTHON_RANDOM, "numpy": NUMPY_RANDOM,
          "seen": ("seen",)}
CONSEQUENCES = {"python": ORDER, "numpy": ORDER}


def augmented(images):
    out = []
    for image in images:
        if random.random() < .5: image = image[:, :, ::-1]
        image = np.roll(image, random.randint(-1, 1), axis=2)
        out.append(image + np.random.normal(0, .1, image.shape).astype("float32"))
    return torch.from_numpy(np.stack(out))


class Run:
    def __init__(self):
        made = np.random.default_rng(3)
        self.images = made.normal(size=(12, 1, 6, 6)).astype("float32")
        self.images[:, :, :3] += np.linspace(-1, 1, 12, dtype="float32")[:, None, None, None]
        self.labels = torch.arange(12)//4
        self.cnn = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3))
        self.optimizer = torch.optim.AdamW(self.cnn.parameters(), 1e-2)
        self.seen = 0


def make(): return Run()


def step(run):
    chosen = np.random.choice(12, 6, replace=False)
    loss = nn.functional.cross_entropy(run.cnn(augmented(run.images[chosen])), run.labels[chosen])
    run.optimizer.zero_grad()
    loss.backward()
    run.optimizer.step()
    run.seen += len(chosen)
    return loss.item()


def save(run, without=()):
    return but({"cnn": run.cnn.state_dict(), "optimizer": run.optimizer.state_dict(), "seen": run.seen,
                "python": random.getstate(), "numpy": np.random.get_state()}, without)


def load(run, saved):
    if "cnn" in saved: run.cnn.load_state_dict(saved["cnn"])
    if "optimizer" in saved: run.optimizer.load_state_dict(saved["optimizer"])
    if "python" in saved: random.setstate(saved["python"])
    if "numpy" in saved: np.random.set_state(saved["numpy"])
    run.seen = saved.get("seen", 0)
