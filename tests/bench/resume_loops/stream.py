"A stream that is read through a shuffle buffer, and that can be told to begin at a position."
import torch
from torch import nn

from tests.bench.resume_loops import ORDER, but

WARM, STEPS = 7, 6
STATES = {"model": ("model",), "optimizer": ("optimizer",), "read": ("read", "stream", *ORDER),
          "buffer": ("buffer", *ORDER), "picks": ("picks", "generator", *ORDER)}


class Stream:
    "Numbers that follow each other by a rule, as if they came from a large file."
    def __init__(self, size=10):
        self.read, self.size, self.buffer = 0, size, []
        self.picks = torch.Generator().manual_seed(33)

    def __iter__(self): return self

    def __next__(self):
        while len(self.buffer) < self.size:
            self.buffer.append(self.read)
            self.read += 1
        i = torch.randint(self.size, (), generator=self.picks).item()
        return self.buffer.pop(i)


class Experiment:
    def __init__(self):
        self.stream = Stream()
        self.model = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 1))
        self.optimizer = torch.optim.RMSprop(self.model.parameters(), 5e-3, centered=True)

    def batch(self, n=5):
        t = torch.tensor([next(self.stream) for _ in range(n)], dtype=torch.float)
        return torch.stack([t.sin(), (.7*t).cos()], 1), (.3*t).sin()[:, None]


def make(): return Experiment()


def step(experiment):
    x, y = experiment.batch()
    loss = nn.functional.mse_loss(experiment.model(x), y)
    experiment.optimizer.zero_grad()
    loss.backward()
    experiment.optimizer.step()
    return loss.item()


def save(experiment, without=()):
    stream = experiment.stream
    return but({"model": experiment.model.state_dict(), "optimizer": experiment.optimizer.state_dict(),
                "read": stream.read, "buffer": stream.buffer, "picks": stream.picks.get_state()}, without)


def load(experiment, saved):
    for name in ("model", "optimizer"):
        if name in saved: getattr(experiment, name).load_state_dict(saved[name])
    stream = experiment.stream
    stream.read, stream.buffer = saved.get("read", 0), saved.get("buffer", [])
    if "picks" in saved: stream.picks.set_state(saved["picks"])
    return experiment
