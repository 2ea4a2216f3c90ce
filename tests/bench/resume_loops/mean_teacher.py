"A teacher that is torch's average of the student, and a loss that asks the student to agree with it."
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from tests.bench.resume_loops import but

WARM, STEPS = 6, 5
STATES = {"student": ("student",), "teacher": ("teacher",), "optimizer": ("optimizer",),
          "noise": ("noise", "generator", "batches")}


class MeanTeacher:
    def __init__(self):
        self.student = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3))
        self.teacher = AveragedModel(self.student, multi_avg_fn=get_ema_multi_avg_fn(.8))
        self.optimizer = torch.optim.AdamW(self.student.parameters(), 1e-2)
        self.noise = torch.Generator().manual_seed(77)
        self.x = torch.randn(20, 6, generator=torch.Generator().manual_seed(1))
        self.y = self.x[:, :3].argmax(1)

    def noisy(self): return self.x + .1*torch.randn(self.x.shape, generator=self.noise)

    def fit(self):
        out = self.student(self.noisy())
        with torch.no_grad(): wanted = self.teacher(self.noisy())
        loss = F.cross_entropy(out[:8], self.y[:8]) + 2*F.mse_loss(out.softmax(1), wanted.softmax(1))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.teacher.update_parameters(self.student)
        return loss.item()


def make(): return MeanTeacher()
def step(run): return run.fit()


def save(run, without=()):
    return but({"student": run.student.state_dict(), "teacher": run.teacher.state_dict(),
                "optimizer": run.optimizer.state_dict(), "noise": run.noise.get_state()}, without)


def load(run, saved):
    for name in {"student", "teacher", "optimizer"} & {*saved}: getattr(run, name).load_state_dict(saved[name])
    if "noise" in saved: run.noise.set_state(saved["noise"])
    return run
