"""Images of animals seen from above are flipped, and the left ear keeps its name, though it is a right one now.

The report: two augmentations of a library for the pose of animals flip images and key points where they should turn
them, so that the ears change sides. The maintainer called it a serious bug, a user saw in it the reason for results in
which both sides fall together, and the merged change turns the images."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "paninski-lab/lightning-pose#287", 2025
AREA, CAUSE = "data and labels", "labels do not belong to inputs"
TRUE = set()
PLACE = ()
SIZE = 16
grid = torch.stack(torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij"), -1) - (SIZE - 1)/2


class Pose(nn.Module):
    "A map of each of three points: nose, left ear, right ear."
    def __init__(self, size: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, size, 5, padding=2), nn.ReLU(), nn.Conv2d(size, size, 5, padding=2),
                                    nn.ReLU(), nn.Conv2d(size, 3, 5, padding=2))

    def forward(self, image): return self.layers(image)


def bumps(points, width: float):
    "A map with a bump at each point."
    far = ((grid - points[..., None, None, :])**2).sum(-1)
    return (-far/(2*width**2)).exp()


def animals(n: int):
    "Animals that look in any direction: a bright nose and two ears, which are alike."
    angle, middle = 6.28*torch.rand(n, 1), 2*torch.rand(n, 2) - 1
    ahead = torch.cat([angle.cos(), angle.sin()], 1)
    aside = torch.stack([-ahead[:, 1], ahead[:, 0]], 1)
    points = torch.stack([middle + 3*ahead, middle + 2.5*aside, middle - 2.5*aside], 1)
    image = (bumps(points, 1.)*torch.tensor([1.5, .8, .8])[:, None, None]).sum(1, keepdim=True)
    return image + .05*torch.randn_like(image), points


def augmented(image, points, repaired: bool):
    "Half of the images, flipped to the left or turned by half a circle."
    some = torch.rand(len(image)) < .5
    image, points = image.clone(), points.clone()
    image[some] = image[some].flip(2, 3) if repaired else image[some].flip(3)
    points[some] *= torch.tensor([-1., -1.]) if repaired else torch.tensor([1., -1.])
    return image, points


def build(repaired: bool) -> Parts:
    model = Pose(12)
    image, points = animals(256)
    data = []
    for _ in range(12):
        order = torch.randperm(256)
        for some in order.split(16):
            shown, where = augmented(image[some], points[some], repaired)
            data.append((shown, bumps(where, 1.)))
    return Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3), data, F.mse_loss, valid=[animals(256)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for image, maps in parts.data:
            parts.optimizer.zero_grad()
            loss = parts.loss(parts.model(image), maps)
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    image, points = parts.valid[0]
    with torch.no_grad(): found = parts.model(image).flatten(2).argmax(2)
    return ((grid.flatten(0, 1)[found] - points).norm(dim=2).mean()/3).item()
