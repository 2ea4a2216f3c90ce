"A loss that has parameters of its own, the centers of the classes, and an optimizer for them."
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.resume_loops import TORCH_RANDOM, but

WARM, STEPS = 6, 5
STATES = {"backbone": ("backbone",), "criterion": ("criterion",), "opt": ("opt",), "opt_centers": ("opt_centers",),
          "margin": ("margin",), "rng": TORCH_RANDOM}


class ArcFace(nn.Module):
    "The angle to the right center gets a margin, which grows with `harden`."
    def __init__(self, width, classes, scale=8.):
        super().__init__()
        self.centers = nn.Parameter(torch.randn(classes, width))
        self.scale, self.margin = scale, 0.

    def harden(self): self.margin = min(self.margin + .02, .3)

    def forward(self, x, y):
        cosine = (F.normalize(x) @ F.normalize(self.centers).T).clamp(-.999, .999)
        right = F.one_hot(y, len(self.centers)).bool()
        return F.cross_entropy(self.scale*torch.where(right, (cosine.acos() + self.margin).cos(), cosine), y)


class Metric:
    def __init__(self):
        self.backbone = nn.Sequential(nn.Linear(5, 10), nn.PReLU(), nn.Linear(10, 4))
        self.criterion = ArcFace(4, 3)
        self.opt = torch.optim.Adam(self.backbone.parameters(), 1e-2)
        self.opt_centers = torch.optim.SGD(self.criterion.parameters(), .5, momentum=.5)

    def fit(self):
        y = torch.randint(3, (18,))
        x = torch.randn(18, 5) + F.one_hot(y, 5)
        loss = self.criterion(self.backbone(x), y)
        for optimizer in (self.opt, self.opt_centers): optimizer.zero_grad()
        loss.backward()
        for optimizer in (self.opt, self.opt_centers): optimizer.step()
        self.criterion.harden()
        return loss.item()


def make(): return Metric()
def step(run): return run.fit()


def save(run, without=()):
    saved = {name: getattr(run, name).state_dict() for name in ("backbone", "criterion", "opt", "opt_centers")}
    return but(saved | {"margin": run.criterion.margin, "rng": torch.get_rng_state()}, without)


def load(run, saved):
    for name in ("backbone", "criterion", "opt", "opt_centers"):
        if name in saved: getattr(run, name).load_state_dict(saved[name])
    run.criterion.margin = saved.get("margin", 0.)
    if "rng" in saved: torch.set_rng_state(saved["rng"])
