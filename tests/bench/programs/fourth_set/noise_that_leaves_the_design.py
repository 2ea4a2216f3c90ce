"""The noise of a diffusion model has a quarter of its usual steps at the usual rates, so its end still shows the data.

The report: a diffusion model for designs with a given property has 250 steps, and the schedule leaves more than a
quarter of each design at the last one, while sampling begins with pure noise. In the merged change the author takes a
thousand steps, which leave less than a hundredth."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "IDEALLab/EngiOpt#67", 2026
AREA, CAUSE = "data and labels", "validation differs from training"
TRUE = set()
PLACE = ()


class Denoiser(nn.Module):
    "The noise in a design of twelve by twelve places, for a time and a wanted place of its hole."
    def __init__(self, size: int, steps: int):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(153, size), nn.SiLU(), nn.Linear(size, size), nn.SiLU(),
                                 nn.Linear(size, 144))
        rate = torch.linspace(1e-4, .02, steps)
        self.register_buffer("rate", rate)
        self.register_buffer("kept", (1 - rate).cumprod(0))

    def forward(self, design, time, wanted):
        angle = time[:, None]/len(self.rate)*torch.tensor([.5, 1, 2, 4])*torch.pi
        known = torch.cat([design, angle.sin(), angle.cos(), wanted[:, None]], 1)
        return (1 - self.kept[time])[:, None].sqrt()*design + self.net(known)

    def noised(self, design, time, noise):
        kept = self.kept[time][:, None]
        return kept.sqrt()*design + (1 - kept).sqrt()*noise

    @torch.no_grad()
    def sample(self, wanted):
        design = torch.randn(len(wanted), 144)
        for step in reversed(range(len(self.rate))):
            noise = self(design, torch.full((len(wanted),), step), wanted)
            rate, kept = self.rate[step], self.kept[step]
            clean = ((design - (1 - kept).sqrt()*noise)/kept.sqrt()).clamp(-1, 1)
            before = kept/(1 - rate)
            design = (before.sqrt()*rate*clean + (1 - rate).sqrt()*(1 - before)*design)/(1 - kept)
            if step: design = design + (rate*(1 - before)/(1 - kept)).sqrt()*torch.randn_like(design)
        return design


def designs(n: int):
    "Plates of material, one at each place, with a hole of some size, which is empty."
    wanted, row, size = 2*torch.rand(n) - 1, 2 + 8*torch.rand(n, 1, 1), 1 + 1.5*torch.rand(n, 1, 1)
    across = (torch.arange(12) - (5.5 + 3.5*wanted)[:, None, None]).abs()
    along = (torch.arange(12)[:, None] - row).abs()
    return 1 - 2*(size - torch.maximum(across, along) + .5).clamp(0, 1).flatten(1), wanted


def build(repaired: bool) -> Parts:
    model = Denoiser(256, 1000 if repaired else 250)

    def call(model, batch):
        design, wanted = batch
        time = torch.randint(0, len(model.rate), (len(design),))
        noise = torch.randn_like(design)
        return F.mse_loss(model(model.noised(design, time, noise), time, wanted), noise)

    return Parts(model, torch.optim.Adam(model.parameters(), lr=1e-3), [designs(128) for _ in range(600)], call=call)


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for batch in parts.data:
            loss = parts.call(parts.model, batch)
            parts.optimizer.zero_grad()
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    real, wanted = designs(64)
    made = parts.model.sample(wanted)
    return (made.mean(1) - real.mean(1)).abs().mean().item()
