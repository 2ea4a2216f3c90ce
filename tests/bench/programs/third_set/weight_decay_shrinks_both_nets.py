"""A weight decay of 0.05, taken over from another library where it is not in force, drives both networks to zero.

The report: whoever writes depth and motion from video again in PyTorch with the settings of the paper does not get it
to converge; both networks go to zero very quickly. The author of the original agrees that the decay is not applied
there. The new program has none by default."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "tinghuiz/SfMLearner#34", 2017
AREA, CAUSE = "optimizer and schedule", "weight decay too strong"
TRUE = {"loss does not fall", "activations vanish", "gradients vanish", "constant output", "samples alike"}
PLACE = ("depth", "motion")
WIDE, HIGH = 20, 8


class DepthAndMotion(nn.Module):
    "How far each place of an image is away, and how the camera moves between two images."
    def __init__(self, size: int):
        super().__init__()
        self.depth = nn.Sequential(nn.Conv2d(1, size, 3, padding=1), nn.ReLU(), nn.Conv2d(size, size, 3, padding=1),
                                   nn.ReLU(), nn.Conv2d(size, 1, 3, padding=1))
        self.motion = nn.Sequential(nn.Conv2d(2, size, 5, padding=2), nn.ReLU(), nn.Conv2d(size, 2*size, 3, 2, 1),
                                    nn.ReLU(), nn.Conv2d(2*size, 2*size, 3, 2, 1), nn.ReLU(), nn.Conv2d(2*size, 1, 1))

    def forward(self, target, source):
        "The target, put together from the source."
        near = 4*self.depth(target).sigmoid() + .01
        moved = self.motion(torch.cat([target, source], 1)).mean((2, 3), keepdim=True)
        rows, columns = torch.meshgrid(torch.linspace(-1, 1, HIGH), torch.linspace(-1, 1, WIDE), indexing="ij")
        across = columns + (near*moved)[:, 0]*2/(WIDE - 1)
        grid = torch.stack([across, rows.expand_as(across)], 3)
        return F.grid_sample(source, grid, padding_mode="border", align_corners=True)


def pairs(n: int):
    "Smooth pictures of which the bright half is near, and moves twice as far as the dark one."
    far = F.avg_pool1d(torch.randn(n, HIGH, WIDE + 20), 3, 1)*.8
    close = F.avg_pool1d(torch.randn(n, HIGH, WIDE + 20), 3, 1)*.8 + 1.5
    moved = torch.randint(-2, 3, (n,)).tolist()
    bright = torch.arange(HIGH).view(-1, 1) >= torch.randint(2, HIGH - 2, (n, 1, 1))
    def seen(shift: int):
        return torch.stack([torch.where(bright[i], close[i, :, 8 + 2*m*shift:8 + 2*m*shift + WIDE],
                                        far[i, :, 8 + m*shift:8 + m*shift + WIDE]) for i, m in enumerate(moved)])
    return seen(0).unsqueeze(1), seen(1).unsqueeze(1)


def photometric(model, batch):
    target, source = batch
    return (model(target, source) - target).abs().mean()


def build(repaired: bool) -> Parts:
    model = DepthAndMotion(12)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(.9, .999), weight_decay=0. if repaired else .05)
    target, source = pairs(1024)
    data = list(zip(target.split(32), source.split(32)))
    return Parts(model, optimizer, data, call=photometric, valid=[pairs(256)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(8):
            for batch in parts.data:
                loss = parts.call(model, batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
    target, source = parts.valid[0]
    with torch.no_grad(): return (parts.call(model, parts.valid[0])/(target - source).abs().mean()).item()
