"""The new head of a pretrained network ends in a sigmoid, and the loss puts another one on top of it.

The report: an example of fine-tuning in stages uses the loss for logits, while its forward pass returns probabilities.
The change was merged; a maintainer chose to take the sigmoid out of the forward pass."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "Lightning-AI/pytorch-lightning#7096", 2021
AREA, CAUSE = "loss and task", "activation before the loss"
TRUE = {"saturated", "constant output"}
PLACE = ("head",)


class CatsAndDogs(nn.Module):
    "A body that was trained before, of which all but the norms is frozen, and a new head."
    def __init__(self, sigmoid: bool):
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1),
                                  nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        for layer in self.body:
            if not isinstance(layer, nn.Conv2d): continue
            shape = layer.weight.shape
            layer.weight = nn.Parameter(torch.randn(shape, generator=generator)/shape[1:].numel()**.5, False)
            layer.bias.requires_grad_(False)
        self.head = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
        self.sigmoid = sigmoid

    def forward(self, x):
        output = self.head(self.body(x))
        return output.sigmoid() if self.sigmoid else output


def pets(n: int):
    "Dogs are coarser and cats striped; one label in twelve is wrong."
    dog = (torch.rand(n) < .4).float()
    row = torch.arange(16.)[:, None].expand(16, 16)
    stripes = torch.sin(row*1.5 + 6*torch.rand(n, 1, 1, 1))
    coarse = F.interpolate(torch.randn(n, 1, 4, 4), size=16, mode="bilinear")
    pattern = torch.where(dog[:, None, None, None] > 0, coarse, stripes)
    x = pattern*(.5 + torch.rand(n, 3, 1, 1)) + .3*torch.randn(n, 3, 16, 16)
    wrong = torch.rand(n) < .08
    return x, torch.where(wrong, 1 - dog, dog).unsqueeze(1)


def build(repaired: bool) -> Parts:
    model = CatsAndDogs(sigmoid=not repaired)
    wanted = [p for p in model.parameters() if p.requires_grad]
    x, y = pets(512)
    return Parts(model, torch.optim.Adam(wanted, lr=1e-2), list(zip(x.split(32), y.split(32))),
                 F.binary_cross_entropy_with_logits, valid=[pets(512)], repaired=repaired)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 6], .1)
    with record.on(model, optimizer):
        for _ in range(8):
            model.train()
            for x, y in parts.data:
                loss = parts.loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
            schedule.step()
    x, y = parts.valid[0]
    model.eval()
    with torch.no_grad(): chance = model(x).sigmoid() if parts.repaired else model(x)
    return F.binary_cross_entropy(chance.clamp(1e-3, 1 - 1e-3), y).item()
