"""With a schedule, the schedule steps where the optimizer should: the rate changes and the weights do not.

The report: the loss of a network that learns motion from pictures does not come down if a schedule is used. The
maintainer found that the optimizer steps only without one; with both steps it works, the author of the report said."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "ClementPinard/SfmLearner-Pytorch#5", 2017
AREA, CAUSE = "loop", "no step"
TRUE = {"not trained", "loss does not fall"}
PLACE = ()


class Motion(nn.Module):
    "How far the camera has moved between two pictures."
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 24, 3, stride=2), nn.ReLU(),
                                  nn.Conv2d(24, 24, 3), nn.ReLU(), nn.Flatten(), nn.Linear(216, 48), nn.ReLU())
        self.last = nn.Linear(48, 2)

    def forward(self, one, two): return .1*self.last(self.body(torch.cat([one, two], 1)))


def moved(pictures, motion):
    straight = torch.eye(2, 3).expand(len(pictures), 2, 3)
    places = F.affine_grid(straight, list(pictures.shape), align_corners=False) + motion.view(-1, 1, 1, 2)
    return F.grid_sample(pictures, places, padding_mode="border", align_corners=False)


def pairs(n: int):
    "A soft ground, the same after a small motion, and the motion."
    ground = F.interpolate(torch.randn(n, 1, 4, 4), size=(12, 12), mode="bicubic")
    motion = .2*(2*torch.rand(n, 2) - 1)
    return ground, moved(ground, motion), motion


def photometric(model, batch):
    one, two, _ = batch
    return F.l1_loss(moved(one, model(one, two)), two)


def build(repaired: bool) -> Parts:
    model = Motion()
    one, two, motion = pairs(640)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    data = list(zip(one.split(32), two.split(32), motion.split(32)))
    return Parts(model, optimizer, data, call=photometric, valid=[pairs(256)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=200, gamma=.5)
    with record.on(model, optimizer):
        for _ in range(16):
            for batch in parts.data:
                loss = parts.call(model, batch)
                optimizer.zero_grad()
                loss.backward()
                if parts.repaired: optimizer.step()
                schedule.step()
                record.step(loss)
    one, two, motion = parts.valid[0]
    with torch.no_grad(): return (F.mse_loss(model(one, two), motion)/motion.var()).item()
