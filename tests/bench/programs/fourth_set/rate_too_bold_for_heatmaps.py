"""A rate that suits one data set is so large for another that the heatmaps of all points stay flat.

The report: a network that finds points of animals does not learn with the rate that is set, and does with a tenth of
it, as the author shows. The maintainers wrote that the rate is too bold for some data, and merged a smaller one."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "DeepLabCut/DeepLabCut#2922", 2025
AREA, CAUSE = "optimizer and schedule", "learning rate too large"
TRUE = {"loss does not fall", "dead units", "constant output", "samples alike", "gradients vanish", "not trained",
        "spike", "input unused", "outputs blow up"}
PLACE = ()
points = 3


def layer(before: int, after: int, stride: int = 1): return nn.Conv2d(before, after, 3, stride, 1), nn.ReLU()


class Finder(nn.Module):
    "A map for each point."
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(*layer(1, 16), *layer(16, 32, 2), *layer(32, 32), *layer(32, 32))
        self.head = nn.ConvTranspose2d(32, points, 4, 2, 1)

    def forward(self, x): return self.head(self.backbone(x))


def frames(n: int):
    "Three blots of different size and brightness, and a map for each."
    at = 2 + 12*torch.rand(n, points, 2)
    grid = torch.arange(16.)
    def blots(width):
        rows, columns = (torch.exp(-.5*((grid - at[..., i, None])/width[:, None])**2) for i in (0, 1))
        return rows[..., :, None]*columns[..., None, :]
    light = (blots(torch.tensor([.8, 1.2, 1.8]))*torch.tensor([3., -2., 1.5])[:, None, None]).sum(1, keepdim=True)
    return light + .15*torch.randn(n, 1, 16, 16), blots(torch.full((points,), 1.3))


def build(repaired: bool) -> Parts:
    model = Finder()
    x, maps = frames(256)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3 if repaired else 3e-2)
    return Parts(model, optimizer, list(zip(x.split(16), maps.split(16))), F.mse_loss, valid=[frames(128)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [8, 10], .1)
    with record.on(model, optimizer):
        for _ in range(12):
            model.train()
            for x, maps in parts.data:
                optimizer.zero_grad()
                loss = parts.loss(model(x), maps)
                loss.backward()
                optimizer.step()
                record.step(loss)
            schedule.step()
    model.eval()
    x, maps = parts.valid[0]
    with torch.no_grad(): return (parts.loss(model(x), maps)/maps.var()).item()
