"""Batch norm in the eyes of a policy that is averaged: the average takes its parameters, and not what it measured.

The report: a policy that finds actions by taking away noise has batch norm in its network for images. Its error for the
noise falls, yet the actions that the averaged copy finds are unsteady and poor. With group norm in its place both got
much better, the author writes; a paper on the policy asks for that, too."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "real-stanford/diffusion_policy#103", 2024
AREA, CAUSE = "modes", "batch norm"
TRUE = {"statistics stay behind"}
PLACE = ("look.1", "look.4")
LEVELS = 10
left = torch.linspace(.98, .05, LEVELS).sqrt()


class Policy(nn.Module):
    "Which noise is in an action, given an image and how much noise there is."
    def __init__(self, norm):
        super().__init__()
        self.look = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), norm(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), norm(32),
                                  nn.ReLU(), nn.Flatten(), nn.Linear(288, 32))
        self.level = nn.Embedding(LEVELS, 16)
        self.noise = nn.Sequential(nn.Linear(50, 96), nn.Mish(), nn.Linear(96, 96), nn.Mish(), nn.Linear(96, 2))

    def forward(self, image, action, level):
        return self.noise(torch.cat([self.look(image), action, self.level(level)], 1))


def scenes(n: int):
    "A bright dot on a grey ground, and the place to which the hand has to move."
    place = 2*torch.rand(n, 2) - 1
    grid = torch.linspace(-1, 1, 12)
    rows, columns = (torch.exp(-((grid - place[:, i, None])/.3)**2) for i in (0, 1))
    image = 2*(rows[:, :, None]*columns[:, None, :])[:, None] + 1 + .1*torch.randn(n, 1, 12, 12)
    return image, place + .05*torch.randn(n, 2)


def noise_loss(model, batch):
    image, action = batch
    level, noise = torch.randint(LEVELS, (len(image),)), torch.randn_like(action)
    keep = left[level][:, None]
    return F.mse_loss(model(image, keep*action + (1 - keep**2).sqrt()*noise, level), noise)


@torch.no_grad()
def act(model, image):
    action = torch.randn(len(image), 2)
    for level in reversed(range(LEVELS)):
        noise = model(image, action, torch.full((len(image),), level))
        clean = ((action - (1 - left[level]**2).sqrt()*noise)/left[level]).clamp(-1.2, 1.2)
        if level == 0: return clean
        noise = (action - left[level]*clean)/(1 - left[level]**2).sqrt()
        action = left[level - 1]*clean + (1 - left[level - 1]**2).sqrt()*noise


def build(repaired: bool) -> Parts:
    model = Policy((lambda size: nn.GroupNorm(size//8, size)) if repaired else nn.BatchNorm2d)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-6)
    image, action = scenes(48*32)
    return Parts(model, optimizer, list(zip(image.split(32), action.split(32))), call=noise_loss, valid=[scenes(256)],
                 repaired=repaired)


def train(parts: Parts, record) -> float:
    model, average = parts.model, copy.deepcopy(parts.model).eval()
    with record.on(model, parts.optimizer):
        for _ in range(7):
            for batch in parts.data:
                loss = parts.call(model, batch)
                loss.backward()
                parts.optimizer.step()
                parts.optimizer.zero_grad()
                with torch.no_grad():
                    for old, new in zip(average.parameters(), model.parameters()): old.lerp_(new, .05)
                record.step(loss)
    image, action = parts.valid[0]
    return (F.mse_loss(act(average, image), action)/action.var()).item()
