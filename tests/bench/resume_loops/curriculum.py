"Sequences grow longer once the model is good enough at those of today."
import torch
from torch import nn

from tests.bench.resume_loops import TORCH_RANDOM, but

WARM, STEPS = 25, 8
STATES = {"model": ("model",), "optimizer": ("optimizer",), "length": ("length",),
          "recent": ("recent",), "promotions": ("promotions",), "steps": ("steps",),
          "torch_rng": TORCH_RANDOM}


class Curriculum:
    def __init__(self, start=2, longest=12, enough=.72):
        self.length, self.longest, self.enough = start, longest, enough
        self.recent, self.promotions = [], []

    def report(self, step, loss):
        self.recent = [*self.recent, loss][-3:]
        if len(self.recent) == 3 and sum(self.recent)/3 < self.enough and self.length < self.longest:
            self.length += 1
            self.promotions.append(step)
            self.recent = []


class Parity(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(1, 8, batch_first=True), nn.Linear(8, 1)

    def forward(self, x): return self.out(self.rnn(x[..., None])[0][:, -1])[:, 0]


class Run:
    def __init__(self):
        self.model, self.curriculum, self.steps = Parity(), Curriculum(), 0
        self.optimizer = torch.optim.Adamax(self.model.parameters(), 1e-2)

    def __call__(self):
        bits = torch.randint(2, (16, self.curriculum.length)).float()
        loss = nn.functional.binary_cross_entropy_with_logits(self.model(bits), bits.sum(1) % 2)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        self.curriculum.report(self.steps, loss.item())
        return loss.item()


def make(): return Run()
def step(run): return run()


def save(run, without=()):
    c = run.curriculum
    return but({"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict(), "length": c.length,
                "recent": c.recent, "promotions": c.promotions, "steps": run.steps,
                "torch_rng": torch.get_rng_state()}, without)


def load(run, saved):
    run.steps = saved.get("steps", 0)
    for name in ("model", "optimizer"):
        if name in saved: getattr(run, name).load_state_dict(saved[name])
    for name in ("length", "recent", "promotions"):
        if name in saved: setattr(run.curriculum, name, saved[name])
    if "torch_rng" in saved: torch.set_rng_state(saved["torch_rng"])
