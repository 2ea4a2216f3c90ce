"""The loop of a trainer calls backward, moves the schedule and clears the gradients, and never makes a step.

The report: after backward the call of the optimizer's step is missing, so no weight is ever updated. The author of the
code thanked and updated it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "tedlasai/learn2refocus#5", 2026
AREA, CAUSE = "loop", "no step"
TRUE = {"loss does not fall", "not trained", "gradients thrown away"}
PLACE = ()

frames, high = 5, 8


class Denoiser(nn.Module):
    "Over the noisy focal stack and the one frame that is given, as a short video."
    def __init__(self, wide: int):
        super().__init__()
        self.level = nn.Sequential(nn.Linear(1, wide), nn.SiLU(), nn.Linear(wide, wide))
        self.front = nn.Conv3d(2, wide, 3, padding=1)
        self.middle = nn.Sequential(nn.GroupNorm(4, wide), nn.SiLU(), nn.Conv3d(wide, wide, 3, padding=1))
        self.last = nn.Sequential(nn.GroupNorm(4, wide), nn.SiLU(), nn.Conv3d(wide, 1, 3, padding=1))

    def forward(self, noisy, given, sigma):
        x = torch.cat([noisy, given.expand_as(noisy)], 1)
        x = self.front(x) + self.level(sigma.log()[:, None]/4)[..., None, None, None]
        return self.last(x + self.middle(x))


def stacks(n: int):
    "A scene with more and more blur from frame to frame."
    frame, shown = (4*F.interpolate(torch.randn(n, 1, 4, 4), size=high)).tanh(), []
    for _ in range(frames):
        shown.append(frame)
        frame = F.avg_pool2d(F.pad(frame, [1]*4, mode="replicate"), 3, 1)
    return torch.stack(shown, 2)


def denoising_loss(model, stack):
    sigma = (torch.randn(len(stack)) - .5).exp()
    wide = sigma.view(-1, 1, 1, 1, 1)
    noisy = stack + wide*torch.randn_like(stack)
    scale, skip = wide/(wide**2 + 1).sqrt(), 1/(wide**2 + 1)
    said = skip*noisy + scale*model(noisy/(wide**2 + 1).sqrt(), stack[:, :, :1], sigma)
    return ((said - stack).square()/scale**2).mean()


def build(repaired: bool) -> Parts:
    model = Denoiser(12)
    data = [stacks(8) for _ in range(30)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    return Parts(model, optimizer, data, call=denoising_loss, valid=[stacks(128)], repaired=repaired)


def train(parts: Parts, record) -> float:
    plan = torch.optim.lr_scheduler.LambdaLR(parts.optimizer, lambda step: min(1, (step + 1)/10))
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            parts.model.train()
            for stack in parts.data:
                loss = parts.call(parts.model, stack)
                loss.backward()
                if parts.repaired: parts.optimizer.step()
                plan.step()
                parts.optimizer.zero_grad()
                record.step(loss)
    parts.model.eval()
    with torch.no_grad(): return parts.call(parts.model, parts.valid[0]).item()
