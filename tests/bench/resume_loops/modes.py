"From a step on, a part is in evaluation mode while the rest trains; and a flag of the model changes what it does."
import torch
from torch import nn

from tests.bench.resume_loops import TORCH_RANDOM, but

WARM, STEPS = 8, 6
STATES = {"model": ("model",), "opt": ("opt",), "modes": ("training", "mode", "eval"), "residual": ("residual",),
          "i": ("i",), "rng": TORCH_RANDOM}
CONSEQUENCES = {"modes": ("running_mean", "running_var", "num_batches_tracked")}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.body = nn.Sequential(nn.Linear(8, 8), nn.Dropout(.3), nn.ReLU())
        self.head, self.residual = nn.Linear(8, 1), False

    def forward(self, x):
        x = self.stem(x)
        return self.head(x + self.body(x) if self.residual else self.body(x))


class Run:
    def __init__(self):
        self.model = Net()
        self.opt = torch.optim.Adadelta(self.model.parameters(), lr=.5)
        self.i = 0


def make(): return Run()


def step(run):
    if run.i == 3: run.model.residual = True
    if run.i == 5: run.model.stem.eval()
    x = torch.randn(14, 4)
    loss = nn.functional.mse_loss(run.model(x), x.amax(1, keepdim=True))
    run.opt.zero_grad()
    loss.backward()
    run.opt.step()
    run.i += 1
    return loss.item()


def save(run, without=()):
    return but({"model": run.model.state_dict(), "opt": run.opt.state_dict(), "residual": run.model.residual,
                "modes": {name: layer.training for name, layer in run.model.named_modules()}, "i": run.i,
                "rng": torch.get_rng_state()}, without)


def load(run, saved):
    if "model" in saved: run.model.load_state_dict(saved["model"])
    if "opt" in saved: run.opt.load_state_dict(saved["opt"])
    for name, training in saved.get("modes", {}).items(): run.model.get_submodule(name).training = training
    run.model.residual, run.i = saved.get("residual", False), saved.get("i", 0)
    if "rng" in saved: torch.set_rng_state(saved["rng"])
