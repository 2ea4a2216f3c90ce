"""A focal loss takes away the dimension of the channel in one factor and not in the other: each image meets each mask.

The report: for batches, the binary focal loss of a library is computed for pairs of samples, because of two lines that
squeeze and unsqueeze; without these it is right. It was marked as a bug."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "kornia/kornia#1308", 2021
AREA, CAUSE = "loss and task", "labels broadcast"
TRUE = {"loss does not fall", "cannot learn by heart"}
PLACE = ()


class Focal(nn.Module):
    "Places that are sure already count less."
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired

    def forward(self, score, mask):
        if not self.repaired: mask = mask.squeeze(1).unsqueeze(0)
        chance = score.sigmoid()
        if not self.repaired: chance = chance.squeeze(1).unsqueeze(1)
        loss = -.25*(1 - chance)**2*mask*(chance + 1e-8).log() - .75*chance**2*(1 - mask)*(1 - chance + 1e-8).log()
        return loss.mean()


class SmallUnet(nn.Module):
    "Down once, up once, with the fine features beside the coarse ones."
    def __init__(self, size: int):
        super().__init__()
        def block(inside, outside):
            return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU())
        self.fine, self.coarse = block(1, size), block(size, 2*size)
        self.down, self.up = nn.MaxPool2d(2), nn.Upsample(scale_factor=2)
        self.last = nn.Sequential(block(3*size, size), nn.Conv2d(size, 1, 1))

    def forward(self, x):
        fine = self.fine(x)
        return self.last(torch.cat([fine, self.up(self.coarse(self.down(fine)))], 1))


def scans(n: int):
    "A bright disc is what is looked for; a dark one is there too."
    place = torch.arange(16.)
    def disc():
        at, radius = 3 + 10*torch.rand(n, 2), 2 + 2*torch.rand(n)
        away = (place[None, :, None] - at[:, :1, None])**2 + (place[None, None] - at[:, 1:, None])**2
        return (away < radius[:, None, None]**2).float()[:, None]
    mask, other = disc(), disc()
    return mask - other + .7*torch.randn(n, 1, 16, 16), mask


def build(repaired: bool) -> Parts:
    model = SmallUnet(6)
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), [scans(12) for _ in range(40)],
                 Focal(repaired), valid=[scans(100)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(3):
            parts.model.train()
            for scan, mask in parts.data:
                score = parts.model(scan)
                loss = parts.loss(score, mask)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    scan, mask = parts.valid[0]
    with torch.no_grad(): found = parts.model(scan) > 0
    both = (found*mask).sum((1, 2, 3))
    return (1 - (2*both + 1)/(found.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)).mean().item()
