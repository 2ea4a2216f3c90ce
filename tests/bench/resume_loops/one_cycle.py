"One cycle of the learning rate, with a momentum that moves against it."
import torch
from torch import nn, optim

from tests.bench.resume_loops import ORDER, but

WARM, STEPS, TOTAL = 9, 7, 30
STATES = {"model": ("model",), "opt": ("opt", "optimizer"), "sched": ("sched", "scheduler"), "step": ("n", *ORDER),
          "lrs": ("lrs",)}


class Learner:
    def __init__(self, model, x, y):
        self.model, self.x, self.y = model, x, y
        self.opt = optim.SGD(model.parameters(), lr=.01, momentum=.9)
        self.sched = optim.lr_scheduler.OneCycleLR(self.opt, max_lr=.3, total_steps=TOTAL, pct_start=.4)
        self.n, self.lrs = 0, []

    def one_batch(self):
        rows = [(self.n*7 + i) % len(self.x) for i in range(7)]
        loss = nn.functional.cross_entropy(self.model(self.x[rows]), self.y[rows], label_smoothing=.1)
        loss.backward()
        self.opt.step()
        self.opt.zero_grad()
        self.lrs += self.sched.get_last_lr()
        self.sched.step()
        self.n += 1
        return loss.item()

    @property
    def state(self):
        return dict(model=self.model.state_dict(), opt=self.opt.state_dict(), sched=self.sched.state_dict(),
                    step=self.n, lrs=self.lrs)


def make():
    torch.manual_seed(9)
    x = torch.randn(40, 4)
    return Learner(nn.Sequential(nn.Linear(4, 14), nn.ReLU(), nn.Linear(14, 3)), x, x[:, :3].argmin(1))


def step(learner): return learner.one_batch()
def save(learner, without=()): return but(learner.state, without)


def load(learner, saved):
    for name in ("model", "opt", "sched"):
        if name in saved: getattr(learner, name).load_state_dict(saved[name])
    learner.n, learner.lrs = saved.get("step", 0), saved.get("lrs", [])
    return learner
