"Parameters and running statistics are kept in two files' worth; every third loss is one of evaluation."
import torch
from torch import nn

from tests.bench.resume_loops import TORCH_RANDOM, but

WARM, STEPS = 7, 6
STATES = {"parameters": ("weight", "bias", "parameters"), "optimizer": ("optimizer", "opt"), "count": ("count",),
          "buffers": ("running_mean", "running_var", "num_batches_tracked", "buffers"), "random": TORCH_RANDOM}


def make():
    model = nn.Sequential(nn.Conv1d(2, 6, 3), nn.BatchNorm1d(6), nn.ReLU(), nn.Flatten(), nn.Linear(36, 2),
                          nn.BatchNorm1d(2, affine=False, momentum=None))
    return {"model": model, "opt": torch.optim.SGD(model.parameters(), .1, momentum=.9), "count": 0}


def step(run):
    model, opt = run["model"], run["opt"]
    x = torch.randn(12, 2, 8) + .5
    y = (x[:, 0].mean(1) > x[:, 1].mean(1)).long()
    run["count"] += 1
    if run["count"] % 3 == 0:
        model.eval()
        with torch.no_grad(): return nn.functional.cross_entropy(model(x), y).item()
    model.train()
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


def save(run, without=()):
    saved = {"parameters": {name: p.detach() for name, p in run["model"].named_parameters()},
             "buffers": dict(run["model"].named_buffers()), "optimizer": run["opt"].state_dict(),
             "count": run["count"], "random": torch.get_rng_state(), }
    return but(saved, without)


def load(run, saved):
    run["model"].load_state_dict(saved.get("parameters", {}) | saved.get("buffers", {}), strict=False)
    if "optimizer" in saved: run["opt"].load_state_dict(saved["optimizer"])
    if "random" in saved: torch.set_rng_state(saved["random"])
    run["count"] = saved.get("count", 0)
