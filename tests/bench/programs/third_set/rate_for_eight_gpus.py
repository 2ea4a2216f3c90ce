"""The learning rate is that of a large batch on many devices, and the batch is a small one: the loss becomes NaN.

The report: a detector is trained by a script of the author's own, and after the first step the loss of the boxes is
NaN. Another user and a maintainer say that the rate is too large and recommend a smaller one; the author confirms that
it worked."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "roytseng-tw/Detectron.pytorch#29", 2018
AREA, CAUSE = "optimizer and schedule", "learning rate too large"
TRUE = {"NaN or Inf", "outputs blow up", "loss rises", "spike", "gradients explode", "activations explode",
        "dead units", "loss does not fall"}
PLACE = ()


class Detector(nn.Module):
    "A body of convolutions, the class of what is in the image, and where it is."
    def __init__(self, size: int, classes: int):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, size, 3, padding=1), nn.ReLU(), nn.Conv2d(size, size, 3, 2, 1),
                                  nn.ReLU(), nn.Conv2d(size, size, 3, 2, 1), nn.ReLU(), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(9*size, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
        self.score, self.box = nn.Linear(128, classes), nn.Linear(128, 4)
        for layer in self.modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)): nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        for layer in self.score, self.box: nn.init.normal_(layer.weight, std=.01)

    def forward(self, x):
        x = self.head(self.body(x))
        return self.score(x), self.box(x)


def scenes(n: int):
    "A coloured rectangle before a lively ground."
    label = torch.randint(0, 3, (n,))
    left, top = torch.randint(0, 6, (2, n))
    wide, high = torch.randint(3, 7, (2, n))
    x = .3*torch.randn(n, 3, 12, 12)
    for i in range(n): x[i, label[i], top[i]:top[i] + high[i], left[i]:left[i] + wide[i]] += 1.5
    return x, label, torch.stack([left/12, top/12, (wide/12).log(), (high/12).log()], 1)/.2


def detect(model, batch):
    x, label, box = batch
    score, found = model(x)
    return F.cross_entropy(score, label) + F.smooth_l1_loss(found, box, reduction="none").sum(1).mean()


def build(repaired: bool) -> Parts:
    model = Detector(16, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=4e-3 if repaired else 8e-2, momentum=.9, weight_decay=1e-4)
    x, label, box = scenes(1200)
    data = list(zip(x.split(2), label.split(2), box.split(2)))
    return Parts(model, optimizer, data, call=detect, valid=[scenes(256)])


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for _ in range(2):
            for batch in parts.data:
                loss = parts.call(model, batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
    x, _, box = parts.valid[0]
    with torch.no_grad(): return (F.mse_loss(model(x)[1], box)/box.var(0).mean()).item()
