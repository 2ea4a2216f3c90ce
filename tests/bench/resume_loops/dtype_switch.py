"After some steps the trunk goes on in half precision, and later the head in double."
import torch
from torch import nn

from tests.bench.resume_loops import but

WARM, STEPS = 7, 6
STATES = {"trunk": ("trunk",), "head": ("head",), "optimizer": ("optimizer",), "dtypes": ("dtype", "bfloat16"),
          "n": ("n",)}
CONSEQUENCES = {"dtypes": ("trunk", "optimizer")}  # rounded values, and momentum of another kind
SILENT = {"optimizer"}  # signs of gradients have no state


class SignSGD(torch.optim.Optimizer):
    def __init__(self, params, lr): super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]: p.sub_(group["lr"]*p.grad.sign())


class Run:
    def __init__(self):
        self.trunk, self.head = nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Linear(8, 2)
        self.optimizer = SignSGD([*self.trunk.parameters(), *self.head.parameters()], 3e-3)
        self.n = 0
        self.x = torch.randn(25, 4, generator=torch.Generator().manual_seed(55))

    def precision(self, part): return next(part.parameters()).dtype

    def __call__(self, x): return self.head(self.trunk(x.to(self.precision(self.trunk))).to(self.precision(self.head)))


def make(): return Run()


def step(run):
    if run.n == 4: run.trunk.bfloat16()
    if run.n == 10: run.head.double()
    out = run(run.x)
    loss = nn.functional.mse_loss(out, run.x[:, :2].to(out.dtype).abs())
    run.optimizer.zero_grad()
    loss.backward()
    run.optimizer.step()
    run.n += 1
    return loss.item()


def save(run, without=()):
    return but({"trunk": run.trunk.state_dict(), "head": run.head.state_dict(), "n": run.n,
                "optimizer": run.optimizer.state_dict(),
                "dtypes": (run.precision(run.trunk), run.precision(run.head))}, without)


def load(run, saved):
    for part, dtype in zip((run.trunk, run.head), saved.get("dtypes", ())): part.to(dtype)
    for name in ("trunk", "head", "optimizer"):
        if name in saved: getattr(run, name).load_state_dict(saved[name])
    run.n = saved.get("n", 0)
