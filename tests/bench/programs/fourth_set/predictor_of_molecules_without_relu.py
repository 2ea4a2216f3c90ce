"""A network for tables puts dropout between its linear layers, and no activation, so it is one linear layer.

The report: the paper has a ReLU after each hidden layer, the code has none. The author confirmed that it was missing
and put it in. The model predicts from marks of a molecule whether it is poisonous, which depends on several marks at
once."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "YujiaBao/ls#1", 2022
AREA, CAUSE = "structure", "no non-linearity"
TRUE = set()
PLACE = ("layers",)

marks = 40


class Predictor(nn.Module):
    "Linear layers with dropout in front of all but the first."
    def __init__(self, sizes: list[int], classes: int, repaired: bool):
        super().__init__()
        layers = [nn.Linear(marks, sizes[0])]
        for size, following in zip(sizes, [*sizes[1:], classes]):
            if repaired: layers.append(nn.ReLU())
            layers += [nn.Dropout(.1), nn.Linear(size, following)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x): return self.layers(x)


def molecules(n: int):
    "Groups that a molecule has or lacks; two pairs of them are poisonous only together."
    x = (torch.rand(n, marks) < .5).float()
    pairs = (x[:, 0] == x[:, 1]).float() + (x[:, 2] == x[:, 3]).float() + .6*x[:, 4]
    return x, (pairs > 1.2).long()


def accuracy(model, batches):
    model.eval()
    with torch.no_grad(): right = torch.cat([model(x).argmax(1) == y for x, y in batches])
    model.train()
    return right.float().mean().item()


def build(repaired: bool) -> Parts:
    model = Predictor([96, 64, 64], 2, repaired)
    x, y = molecules(2400)
    data = [(x[i:i + 100], y[i:i + 100]) for i in range(0, 2400, 100)]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=2e-3), data, F.cross_entropy, valid=[molecules(800)])


def train(parts: Parts, record) -> float:
    best, best_weights = 0., None
    with record.on(parts.model, parts.optimizer):
        for _ in range(15):
            for i in torch.randperm(len(parts.data)).tolist():
                x, y = parts.data[i]
                parts.optimizer.zero_grad()
                loss = parts.loss(parts.model(x), y)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
            found = accuracy(parts.model, parts.valid)
            if found >= best: best, best_weights = found, {k: v.clone() for k, v in parts.model.state_dict().items()}
    parts.model.load_state_dict(best_weights)
    return 1 - accuracy(parts.model, parts.valid)
