"""With each new picture the optimizer is made anew, so Adam forgets what it knew of the map, the decoder and the poses.

The report: a system that maps a room while it finds its own way gathers all parameters in one new Adam for each
picture. A maintainer explained why this was changed: the poses swing, and results were better once optimizers were kept
for the whole run."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "zju3dv/Vox-Fusion#31", 2023
AREA, CAUSE = "optimizer and schedule", "optimizer made anew"
TRUE = {"spike", "learning rate too large"}
PLACE = ()


class Room(nn.Module):
    "How far a point is from a wall, by features of a grid; and where each picture was taken."
    def __init__(self, pictures: int):
        super().__init__()
        self.grid = nn.Parameter(.1*torch.randn(1, 8, 12, 12))
        self.decoder = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
        self.poses = nn.Parameter(torch.zeros(pictures, 2))

    def forward(self, ray, picture):
        place = ray + self.poses[picture].unsqueeze(1)
        found = F.grid_sample(self.grid, place.unsqueeze(0), align_corners=True, padding_mode="border")[0]
        return self.decoder(found.permute(1, 2, 0)).squeeze(2)


def distance(place):
    "To the walls of a room with a pillar."
    walls = .9 - place.abs().amax(-1)
    return torch.minimum(walls, (place - torch.tensor([.3, .2])).norm(dim=-1) - .2)


def pictures(n: int):
    "Points around where a picture was taken, as seen from there, and their measured distances."
    way = torch.cat([torch.zeros(1, 2), .12*torch.randn(n - 1, 2)]).cumsum(0).clamp(-.4, .4)
    ray = .9*torch.rand(n, 48, 2) - .45
    exact = distance(ray + way.unsqueeze(1))
    return ray, exact + .03*torch.randn(n, 48), exact


def loss_of(model, batch):
    picture, ray, measured = batch
    return F.mse_loss(model(ray, picture), measured)


def optimizer_of(model):
    groups = [{"params": [model.grid, *model.decoder.parameters()]}, {"params": [model.poses], "lr": 1e-2}]
    return torch.optim.Adam(groups, lr=1e-2)


def build(repaired: bool) -> Parts:
    ray, measured, exact = pictures(24)
    other, ray = ray[:, 32:], ray[:, :32]
    measured, exact = measured[:, :32], exact[:, 32:]
    data = []
    for last in range(24):
        for _ in range(10):
            some = torch.cat([torch.tensor([last]), torch.randint(0, last + 1, (3,))])
            data.append((some, ray[some], measured[some]))
    model = Room(24)
    return Parts(model, optimizer_of(model), data, call=loss_of, valid=[(torch.arange(24), other, exact)],
                 repaired=repaired)


def train(parts: Parts, record) -> float:
    model = parts.model
    with record.on(model, parts.optimizer):
        for i, batch in enumerate(parts.data):
            if i % 10 == 0:
                newest = i//10
                with torch.no_grad(): model.poses[newest] = model.poses[max(newest - 1, 0)]
                if not parts.repaired: parts.optimizer = optimizer_of(model)
            loss = parts.call(model, batch)
            parts.optimizer.zero_grad()
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    with torch.no_grad(): return (parts.call(model, parts.valid[0])/parts.valid[0][2].var()).sqrt().item()
