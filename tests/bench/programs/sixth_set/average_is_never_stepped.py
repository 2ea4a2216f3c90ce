"""An average of the weights is made before the training and never updated, and it is what is saved in the end.

The report: in a script that fine-tunes a model which makes pictures by removing noise, the averaged weights of several
runs never changed. The author of the report found that the script, unlike its sister, has no call that updates them;
others saw the same, and a change that mends it was merged."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "huggingface/diffusers#5783", 2023
AREA, CAUSE = "loop", "target network"
TRUE = set()
PLACE = ()


class Denoiser(nn.Module):
    "Says which noise was added to a point, from the noisy point, how far the noise went, and a caption."
    def __init__(self, captions: int, size: int = 64):
        super().__init__()
        self.caption = nn.Embedding(captions, 16)
        self.layers = nn.Sequential(nn.Linear(2 + 2 + 16, size), nn.SiLU(), nn.Linear(size, size), nn.SiLU(),
                                    nn.Linear(size, 2))

    def forward(self, x, time, caption):
        wave = torch.stack([(3*time).sin(), (3*time).cos()], 1)
        return self.layers(torch.cat([x, wave, self.caption(caption)], 1))


def points(n: int, center):
    caption = torch.randint(len(center), (n,))
    return center[caption] + .15*torch.randn(n, 2), caption


def loss_of(model, batch):
    x, caption = batch
    time, noise = torch.rand(len(x)), torch.randn_like(x)
    mixed = (1.57*time).cos().unsqueeze(1)*x + (1.57*time).sin().unsqueeze(1)*noise
    return F.mse_loss(model(mixed, time, caption), noise)


def build(repaired: bool) -> Parts:
    center = 1.5*torch.randn(6, 2)
    model = Denoiser(6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    return Parts(model, optimizer, [points(64, center) for _ in range(600)], call=loss_of,
                 valid=[points(2048, center)], repaired=repaired)


@torch.no_grad()
def follow(average, model, decay: float):
    for old, new in zip(average.parameters(), model.parameters()): old.lerp_(new, 1 - decay)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    average = copy.deepcopy(model).requires_grad_(False)
    model.train()
    with record.on(model, optimizer):
        for batch in parts.data:
            loss = parts.call(model, batch)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.)
            optimizer.step()
            optimizer.zero_grad()
            if parts.repaired: follow(average, model, .98)
            record.step(loss)
    model.load_state_dict(average.state_dict())
    with torch.no_grad(): return parts.call(model.eval(), parts.valid[0]).item()
