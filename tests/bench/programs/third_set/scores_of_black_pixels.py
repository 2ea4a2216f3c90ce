"""Features are divided by the largest of their channels, which is zero where all channels of a pixel are zero.

The report: the loss of a network for matching images is NaN on a new set of images. The author found the division, and
a small number below it mended the loss; the maintainer agreed."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "mihaidusmanu/d2-net#78", 2020
AREA, CAUSE = "precision", "NaN or Inf"
TRUE = set()
PLACE = ("detection",)


class Detection(nn.Module):
    "How well a pixel can be recognised: it stands out among its neighbours, and one channel among the others."
    def __init__(self, small: float):
        super().__init__()
        self.small = small

    def forward(self, x):
        x = x.relu()
        high = (x/x.amax((1, 2, 3), keepdim=True)).exp()
        alone = high/(9*F.avg_pool2d(F.pad(high, (1, 1, 1, 1), value=1.), 3, stride=1))
        score = (alone*x/(x.amax(1, keepdim=True) + self.small)).amax(1)
        return score/score.sum((1, 2), keepdim=True)


class Matcher(nn.Module):
    def __init__(self, size: int, small: float):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, size, 3, padding=1, bias=False), nn.ReLU(), nn.AvgPool2d(2),
                                      nn.Conv2d(size, size, 3, padding=1, bias=False), nn.ReLU(),
                                      nn.Conv2d(size, size, 3, padding=1, bias=False))
        self.detection = Detection(small)

    def forward(self, image):
        x = self.features(image)
        return F.normalize(x, dim=1).flatten(2), self.detection(x).flatten(1)


def pairs(n: int):
    "The same scene twice, in other light and with other noise; a fifth of them is wider and has black bars."
    scene = F.interpolate(torch.rand(n, 1, 8, 8), scale_factor=2, mode="bilinear")
    one, other = (scene*(.6 + .8*torch.rand(n, 1, 1, 1)) + .03*torch.randn(n, 1, 16, 16) for _ in range(2))
    bars = torch.ones(n, 1, 16, 16)
    bars[torch.rand(n) < .2, :, :8] = 0.
    return one*bars, other*bars


def build(repaired: bool) -> Parts:
    model = Matcher(16, 1e-8 if repaired else 0.)

    def call(model, batch):
        (one, weight), (other, also) = (model(image) for image in batch)
        apart = 2 - 2*torch.einsum("bcp,bcq->bpq", one, other)
        right = apart.diagonal(dim1=1, dim2=2)
        wrong = (apart + 10*torch.eye(apart.shape[1])).amin(2)
        share = weight*also
        return ((1 + right - wrong).relu()*share).sum(1).div(share.sum(1)).mean()

    data = [pairs(8) for _ in range(40)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, call=call, valid=[pairs(64)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    with torch.no_grad():
        (one, _), (other, _) = (parts.model(image) for image in parts.valid[0])
        lit = (parts.valid[0][0] != 0).flatten(1).all(1)
        found = torch.einsum("bcp,bcq->bpq", one, other)[lit].argmax(2)
    return (found != torch.arange(found.shape[1])).float().mean().item()
