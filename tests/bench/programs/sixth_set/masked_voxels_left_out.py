"""The loss of a masked autoencoder is taken where the input was shown, and nowhere where it was hidden.

The report: the mask is True where a voxel is seen, and the loss for hidden voxels only takes it for the opposite, so
what is hidden has no part in it. A maintainer called it an issue, shortened the change and merged it."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "Sllambias/asparagus#12", 2026
AREA, CAUSE = "loss and task", "mask ignored"
TRUE = set()
PLACE = ()


class Filler(nn.Module):
    "Fills the holes of a volume: down once, up once."
    def __init__(self, size: int = 16):
        super().__init__()
        self.first = nn.Sequential(nn.Conv3d(1, size, 3, padding=1), nn.InstanceNorm3d(size), nn.LeakyReLU())
        self.down = nn.Sequential(nn.Conv3d(size, 2*size, 3, 2, 1), nn.InstanceNorm3d(2*size), nn.LeakyReLU())
        self.up = nn.ConvTranspose3d(2*size, size, 2, 2)
        self.last = nn.Conv3d(2*size, 1, 1)

    def forward(self, x):
        fine = self.first(x)
        return self.last(torch.cat([fine, self.up(self.down(fine))], 1))


def volumes(n: int, side: int = 8):
    "Smooth volumes, and the blocks of them that are shown: True where they are."
    place = torch.linspace(0, 3, side)
    z, y, x = torch.meshgrid(place, place, place, indexing="ij")
    a, b, c, d = torch.randn(4, n, 1, 1, 1, 1)
    volume = (a*x + b*y + c*z + 3*d).sin() + .3*(2*a*y - c*x).cos()
    seen = torch.rand(n, 1, side//2, side//2, side//2) > .5
    return volume, seen.repeat_interleave(2, 2).repeat_interleave(2, 3).repeat_interleave(2, 4)


def build(repaired: bool) -> Parts:
    model = Filler()

    def call(model, batch):
        volume, mask = batch
        output = model(volume*mask)
        return F.mse_loss(output[~mask], volume[~mask]) if repaired else F.mse_loss(output[mask], volume[mask])

    data = [volumes(16) for _ in range(20)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3), data, call=call, valid=[volumes(64)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(5):
            model.train()
            for batch in parts.data:
                optimizer.zero_grad()
                loss = parts.call(model, batch)
                loss.backward()
                optimizer.step()
                record.step(loss)
    volume, mask = parts.valid[0]
    model.eval()
    with torch.no_grad(): output = model(volume*mask)
    return (F.mse_loss(output[~mask], volume[~mask])/volume[~mask].var()).item()
