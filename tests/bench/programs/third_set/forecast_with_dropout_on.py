"""The model is never put into eval mode before it makes its forecasts, so dropout is on.

The report: a model of the motion of cars has a good validation error, and users who write forecasts for the test set by
a loop of their own get much worse ones. One found that `eval()` was missing in it, and others confirm that they reach
the right error with it."""
import torch
from torch import nn

from tests.bench.programs import Parts

SOURCE, YEAR = "ZikangZhou/HiVT#31", 2023
AREA, CAUSE = "modes", "train mode"
TRUE = set()
PLACE = ()
PAST, AHEAD, CARS = 6, 4, 3


class Forecast(nn.Module):
    "Attention over time for each car, then over the cars around the first one."
    def __init__(self, size: int, drop: float):
        super().__init__()
        self.enter, self.times = nn.Linear(2, size), nn.Parameter(.02*torch.randn(PAST, size))
        self.time = nn.Sequential(*(nn.TransformerEncoderLayer(size, 4, 2*size, drop, batch_first=True,
                                                               norm_first=True) for _ in range(2)))
        self.place = nn.Linear(2, size)
        self.cars = nn.TransformerEncoderLayer(size, 4, 2*size, drop, batch_first=True, norm_first=True)
        self.leave = nn.Sequential(nn.LayerNorm(size), nn.Linear(size, size), nn.ReLU(), nn.Linear(size, 4*AHEAD))

    def forward(self, steps, places):
        n = len(steps)
        x = self.time(self.enter(steps).flatten(0, 1) + self.times)[:, -1].view(n, CARS, -1)
        x = self.cars(x + self.place(places))[:, 0]
        return self.leave(x).view(n, AHEAD, 4)


def scenes(n: int):
    "Cars on bends; the first one also slows down for the nearest of the others."
    speed, bend = .5 + torch.rand(n, CARS, 1), .15*torch.randn(n, CARS, 1)
    places = 3*torch.randn(n, CARS, 2)
    places[:, 0] = 0
    near = places[:, 1:].norm(dim=2).min(1).values
    slow = 1 - .3*torch.exp(-near/3)
    angle = bend*torch.arange(PAST + AHEAD)*.3
    steps = speed.unsqueeze(3)*torch.stack([angle.cos(), angle.sin()], 3)
    past = steps[:, :, :PAST] + .01*torch.randn(n, CARS, PAST, 2)
    ahead = (steps[:, 0, PAST:]*slow.view(n, 1, 1)).cumsum(1)
    return (past, places), ahead


def laplace(output, target):
    "The likelihood of places, each with a width of its own."
    place, width = output[..., :2], nn.functional.softplus(output[..., 2:]) + .01
    return ((place - target).abs()/width + width.log()).mean()


def loss_of(model, batch): return laplace(model(*batch[0]), batch[1])


def build(repaired: bool) -> Parts:
    model = Forecast(24, .1)
    (past, places), ahead = scenes(1200)
    parts = past.split(48), places.split(48), ahead.split(48)
    data = [((a, b), c) for a, b, c in zip(*parts)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=1e-4)
    return Parts(model, optimizer, data, call=loss_of, valid=[scenes(512)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8*len(parts.data))
    with record.on(model, optimizer):
        for _ in range(8):
            for batch in parts.data:
                optimizer.zero_grad()
                loss = parts.call(model, batch)
                loss.backward()
                optimizer.step()
                schedule.step()
                record.step(loss)
    if parts.repaired: model.eval()
    inputs, ahead = parts.valid[0]
    with torch.no_grad(): miss = (model(*inputs)[..., :2] - ahead).norm(dim=2).mean()
    return (miss/(ahead - ahead.mean(0)).norm(dim=2).mean()).item()
