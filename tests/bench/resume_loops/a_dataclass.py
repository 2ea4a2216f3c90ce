"A frozen dataclass; reading a checkpoint makes another one with `replace`."
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.bench.resume_loops import TORCH_RANDOM, but

WARM, STEPS = 6, 5
STATES = {"encoder": ("encoder",), "head": ("head",), "adam": ("adam",), "progress": ("progress",),
          "mean": ("mean",), "rng": TORCH_RANDOM}


@dataclass
class Progress:
    done: int = 0
    samples: int = 0


@dataclass(frozen=True)
class Run:
    encoder: nn.Module
    head: nn.Module
    adam: torch.optim.Optimizer
    mean: Tensor  # of the inputs so far
    progress: Progress


def make() -> Run:
    encoder, head = nn.Sequential(nn.Linear(5, 8), nn.ELU()), nn.Linear(8, 5)
    adam = torch.optim.NAdam([*encoder.parameters(), *head.parameters()], lr=5e-3)
    return Run(encoder, head, adam, torch.zeros(5), Progress())


def step(run: Run) -> Tensor:
    x = torch.randn(16, 5) + 1
    run.mean.lerp_(x.mean(0), .1)
    strength = .5**(run.progress.done/10)
    loss = F.mse_loss(run.head(run.encoder(x - run.mean + strength*torch.randn_like(x))), x)
    run.adam.zero_grad()
    loss.backward()
    run.adam.step()
    run.progress.done += 1
    run.progress.samples += len(x)
    return loss.detach()


def save(run: Run, without=()) -> dict:
    return but({"encoder": run.encoder.state_dict(), "head": run.head.state_dict(), "adam": run.adam.state_dict(),
                "mean": run.mean, "progress": (run.progress.done, run.progress.samples),
                "rng": torch.random.get_rng_state()}, without)


def load(run: Run, saved: dict) -> Run:
    for name in ("encoder", "head", "adam"):
        if name in saved: getattr(run, name).load_state_dict(saved[name])
    if "rng" in saved: torch.random.set_rng_state(saved["rng"])
    return replace(run, mean=saved.get("mean", run.mean), progress=Progress(*saved.get("progress", (0, 0))))
