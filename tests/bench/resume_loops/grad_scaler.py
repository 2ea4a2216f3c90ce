"Half precision with a gradient scaler, whose scale grows every fourth step and falls where gradients overflow."
import torch
from torch import nn

from tests.bench.resume_loops import but

WARM, STEPS = 7, 7
STATES = {"model": ("model",), "optimizer": ("optimizer",), "scaler": ("scaler",), "tokens": ("tokens",)}


class Half:
    def __init__(self):
        torch.manual_seed(50)
        self.model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 4))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.**8, growth_interval=4)
        self.x = torch.randn(32, 6)
        self.y = self.x[:, :4].argmax(1)
        self.tokens = 0

    def step(self):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(self.model(self.x), self.y)
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), .5)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.tokens += self.x.numel()
        return loss.item()


def make(): return Half()
def step(run): return run.step()


def save(run, without=()):
    return but({"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict(),
                "scaler": run.scaler.state_dict(), "tokens": run.tokens}, without)


def load(run, saved):
    for name in ("model", "optimizer", "scaler"):
        if name in saved: getattr(run, name).load_state_dict(saved[name])
    run.tokens = saved.get("tokens", run.tokens)
    return run
