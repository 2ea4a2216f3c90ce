"""Images are flipped at random and what the network says is flipped back, but of one of its two heads only.

The report: with depths from a sensor the results of a flipped image are much worse. Before the loss, the depth from the
image alone is flipped back, and the one from the image and the sensor is not, because its name is not in the list. The
maintainer takes over the change."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "TRI-ML/packnet-sfm#227", 2022
AREA, CAUSE = "data and labels", "labels do not belong to inputs"
TRUE = set()
PLACE = ("depth_rgbd",)


def conv(inputs: int, outputs: int):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ELU())


class DepthNet(nn.Module):
    "Depth from the image, and from the image with the few depths that a sensor gives."
    def __init__(self, size: int):
        super().__init__()
        self.image, self.sensor = nn.Sequential(conv(3, size), conv(size, size)), conv(2, size)
        self.both = nn.Sequential(conv(2*size, size), conv(size, size))
        self.depth, self.depth_rgbd = nn.Conv2d(size, 1, 3, padding=1), nn.Conv2d(size, 1, 3, padding=1)

    def forward(self, image, sensor):
        x = self.image(image)
        sensor = torch.cat([sensor, (sensor > 0).float()], 1)
        both = self.both(torch.cat([x, self.sensor(sensor)], 1))
        return {"inv_depths": self.depth(x), "inv_depths_rgbd": self.depth_rgbd(both)}


def flipped(model, image, sensor, names):
    "The output for flipped inputs, flipped back where a name is in the list."
    output = model(image.flip(3), sensor.flip(3))
    return {name: depth.flip(3) if name in names else depth for name, depth in output.items()}


def drives(n: int):
    "Near is at the bottom, with a few things on the road; texture tells a little of the depth."
    depth = (torch.linspace(.2, 1, 10)[:, None] + .6*F.interpolate(torch.rand(n, 1, 4, 6), (10, 16), mode="bilinear"))
    image = depth + .1*torch.randn(n, 3, 10, 16) + .2*torch.rand(n, 3, 1, 1)
    return image, depth*(torch.rand_like(depth) < .15), depth


def build(repaired: bool) -> Parts:
    model = DepthNet(12)
    names = ["inv_depths", "inv_depths_rgbd"] if repaired else ["inv_depths"]

    def call(model, batch):
        image, sensor, depth = batch
        flip = model.training and torch.rand(()) < .5
        output = flipped(model, image, sensor, names) if flip else model(image, sensor)
        return sum((found - depth).abs().mean() for found in output.values())

    data = [drives(8) for _ in range(60)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, call=call, valid=[drives(64)])


def train(parts: Parts, record) -> float:
    plan = torch.optim.lr_scheduler.StepLR(parts.optimizer, 2, .5)
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            parts.model.train()
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
            plan.step()
    parts.model.eval()
    image, sensor, depth = parts.valid[0]
    with torch.no_grad(): found = parts.model(image, sensor)["inv_depths_rgbd"]
    return ((found - depth).abs().mean()/(depth - depth.mean()).abs().mean()).item()
