"A class that has everything, with dropout and a learning rate that falls in steps."
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.resume_loops import ORDER, TORCH_RANDOM, but

WARM, STEPS = 7, 6
STATES = {"model": ("model",), "optimizer": ("optimizer",), "scheduler": ("scheduler",),
          "steps": ("steps_done", *ORDER), "random": TORCH_RANDOM}


class Trainer:
    def __init__(self):
        made = torch.Generator().manual_seed(5)
        self.x = torch.randn(40, 6, generator=made)
        self.y = self.x.argmax(1)
        self.model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(.2), nn.Linear(16, 6))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=5, gamma=.5)
        self.steps_done = 0

    def batch(self):
        at = self.steps_done % 5*8
        return self.x[at:at + 8], self.y[at:at + 8]

    def train_step(self):
        self.model.train()
        x, y = self.batch()
        loss = F.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.steps_done += 1
        return loss.item()

    def checkpoint(self):
        return dict(model=self.model.state_dict(), optimizer=self.optimizer.state_dict(), steps=self.steps_done,
                    scheduler=self.scheduler.state_dict(), random=torch.get_rng_state())

    def resume(self, saved):
        for name in ("model", "optimizer", "scheduler"):
            if name in saved: getattr(self, name).load_state_dict(saved[name])
        self.steps_done = saved.get("steps", 0)
        if "random" in saved: torch.set_rng_state(saved["random"])


def make(): return Trainer()
def step(run): return run.train_step()
def save(run, without=()): return but(run.checkpoint(), without)
def load(run, saved): run.resume(saved)
