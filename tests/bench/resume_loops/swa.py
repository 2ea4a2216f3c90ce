"Stochastic weight averaging: from the fifth step on, another schedule and an average that is equal over steps."
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.optim.swa_utils import SWALR, AveragedModel

from tests.bench.resume_loops import ORDER, but

WARM, STEPS, SWA_START = 9, 6, 5
STATES = {"model": ("model",), "optimizer": ("optimizer",), "scheduler": ("scheduler",),
          "swa_model": ("swa_model", "n_averaged"), "swa_scheduler": ("swa_scheduler",), "epoch": ("epoch", *ORDER)}
X = torch.randn(30, 3, generator=torch.Generator().manual_seed(6))
Y = X.norm(dim=1, keepdim=True)


def make():
    model = nn.Sequential(nn.Linear(3, 8), nn.SiLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), .1, momentum=.5)
    return dict(model=model, optimizer=optimizer, swa_model=AveragedModel(model), epoch=0,
                scheduler=CosineAnnealingLR(optimizer, T_max=10), swa_scheduler=SWALR(optimizer, .02, anneal_epochs=8))


def step(run):
    rows = slice(run["epoch"] % 2, None, 2)
    loss = (run["model"](X[rows]) - Y[rows]).pow(2).mean()
    run["optimizer"].zero_grad()
    loss.backward()
    run["optimizer"].step()
    if run["epoch"] >= SWA_START:
        run["swa_model"].update_parameters(run["model"])
        run["swa_scheduler"].step()
    else: run["scheduler"].step()
    run["epoch"] += 1
    return loss


def save(run, without=()):
    parts = {name: part.state_dict() for name, part in run.items() if name != "epoch"}
    return but(parts | {"epoch": run["epoch"]}, without)


def load(run, saved):
    run["epoch"] = saved.get("epoch", 0)
    for name, part in run.items():
        if name != "epoch" and name in saved: part.load_state_dict(saved[name])
