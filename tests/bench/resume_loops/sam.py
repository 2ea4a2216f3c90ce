"Sharpness-aware minimization, as a torch optimizer around another, with a radius that grows."
import torch
from torch import nn

from tests.bench.resume_loops import but

WARM, STEPS = 6, 5
STATES = {"model": ("model",), "base": ("base", "base_optimizer", "sam"), "rho": ("rho",), "ascents": ("ascents",)}


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base, rho=.02, **options):
        super().__init__(params, dict(rho=rho))
        self.base = base(self.param_groups, **options)
        self.ascents = 0

    @torch.no_grad()
    def ascend(self):
        norm = torch.stack([p.grad.norm() for group in self.param_groups for p in group["params"]]).norm()
        self.away = []
        for group in self.param_groups:
            for p in group["params"]:
                self.away.append((p, group["rho"]*p.grad/(norm + 1e-12)))
                p.add_(self.away[-1][1])
                p.grad = None
        self.ascents += 1

    @torch.no_grad()
    def step(self, closure=None):
        for p, by in self.away: p.sub_(by)
        self.away = []
        self.base.step()
        for group in self.param_groups: group["rho"] = min(group["rho"]*1.1, .5)


class Sharp:
    def __init__(self):
        torch.manual_seed(70)
        self.x = torch.randn(24, 6)
        self.y = self.x[:, :3].argmax(1)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
        self.sam = SAM(self.model.parameters(), torch.optim.SGD, lr=.1, momentum=.9)

    def loss(self): return nn.functional.cross_entropy(self.model(self.x), self.y)


def make(): return Sharp()


def step(run):
    loss = run.loss()
    loss.backward()
    run.sam.ascend()
    run.loss().backward()
    run.sam.step()
    run.sam.base.zero_grad()
    return loss.detach()


def save(run, without=()):
    return but({"model": run.model.state_dict(), "base": run.sam.base.state_dict()["state"],
                "rho": run.sam.param_groups[0]["rho"], "ascents": run.sam.ascents}, without)


def load(run, saved):
    if "model" in saved: run.model.load_state_dict(saved["model"])
    if "base" in saved:
        groups = run.sam.base.state_dict()["param_groups"]
        run.sam.base.load_state_dict({"state": saved["base"], "param_groups": groups})
        run.sam.param_groups = run.sam.base.param_groups
    for group in run.sam.param_groups: group["rho"] = saved.get("rho", group["rho"])
    run.sam.ascents = saved.get("ascents", 0)
