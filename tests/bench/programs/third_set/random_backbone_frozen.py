"""The first layers of a backbone are frozen, as in a paper that had trained them before; here they begin at random.

The report: a detector trained from scratch had poor precision, until the reporter found that the function which makes
it freezes the first layers whether they are pretrained or not. The reporter changed it so that they are trained."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pytorch/vision#2164", 2020
AREA, CAUSE = "parameters", "frozen part"
TRUE = {"not trained"}
PLACE = ("backbone.conv1", "backbone.conv1.0", "backbone.layer1", "backbone.layer1.0")

kinds = 3


def stage(before: int, after: int, stride: int, width: int = 3):
    conv = nn.Conv2d(before, after, width, stride, width//2)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(conv, nn.ReLU())


class Backbone(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.conv1, self.layer1 = stage(3, size, 2, 7), stage(size, size, 2)
        self.layer2, self.layer3 = stage(size, 4*size, 1), stage(4*size, 4*size, 1)

    def forward(self, x): return self.layer3(self.layer2(self.layer1(self.conv1(x))))


class Detector(nn.Module):
    "For each cell of a grid: which thing has its middle there, or none, and how far from the middle of the cell."
    def __init__(self, backbone: Backbone, size: int):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Sequential(nn.Conv2d(4*size, 4*size, 3, padding=1), nn.ReLU())
        self.kind, self.box = nn.Conv2d(4*size, kinds + 1, 1), nn.Conv2d(4*size, 2, 1)

    def forward(self, x):
        x = self.head(self.backbone(x))
        return self.kind(x), self.box(x)


def detector(size: int, repaired: bool, pretrained: bool = False) -> Detector:
    backbone = Backbone(size)
    for name, parameter in backbone.named_parameters():
        trains = name.startswith(("layer2", "layer3")) or repaired and not pretrained
        parameter.requires_grad_(trains)
    return Detector(backbone, size)


def scenes(n: int, looks):
    "One small thing in noise; of the things, it is the fine pattern that differs."
    x = .3*torch.randn(n, 3, 12, 12)
    kind, cell = torch.full((n, 3, 3), kinds), torch.randint(0, 3, (n, 2))
    thing, shift = torch.randint(0, kinds, (n,)), torch.randint(-1, 2, (n, 2))
    corner = F.pad(x, (2, 2, 2, 2))
    for i, (down, right) in enumerate((4*cell + 2 + shift).tolist()):
        corner[i, :, down:down + 5, right:right + 5] += looks[thing[i]]
        kind[i, cell[i, 0], cell[i, 1]] = thing[i]
    return corner[..., 2:-2, 2:-2], kind, cell, shift.float()


def build(repaired: bool) -> Parts:
    looks = torch.randn(kinds, 3, 5, 5)
    looks = 3*(looks - looks.mean((2, 3), keepdim=True))
    model = detector(5, repaired)
    data = [scenes(16, looks) for _ in range(400)]

    def call(model, batch):
        x, kind, cell, shift = batch
        scores, box = model(x)
        here = torch.arange(len(x))
        return F.cross_entropy(scores, kind) + F.smooth_l1_loss(box[here, :, cell[:, 0], cell[:, 1]], shift)
    return Parts(model, torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3), data,
                 call=call, valid=[scenes(300, looks)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for batch in parts.data:
            loss = parts.call(parts.model, batch)
            parts.optimizer.zero_grad()
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    x, kind, cell, _ = parts.valid[0]
    with torch.no_grad(): scores = parts.model(x)[0][:, :-1].flatten(1)
    wanted = kind[torch.arange(len(x)), cell[:, 0], cell[:, 1]]*9 + cell[:, 0]*3 + cell[:, 1]
    return (scores.argmax(1) != wanted).float().mean().item()
