"""The batch norms are frozen before a new task, but the test every few steps ends with `train()` for the whole model.

The report: somebody freezes the norms where the model is adapted, and their running statistics change nevertheless, by
a lot. The periodic test puts every part into training afterwards. The change that gives each part the mode that it had
before was merged."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "ContinualAI/avalanche#772", 2021
AREA, CAUSE = "modes", "batch norm"
TRUE = set()
PLACE = ("body.1", "body.4", "body.7")

kinds = 8


def block(inside: int, outside: int): return [nn.Conv2d(inside, outside, 3, 2, 1), nn.BatchNorm2d(outside), nn.ReLU()]


class Net(nn.Module):
    "One body, and a last layer for each task."
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(*block(1, 16), *block(16, 32), *block(32, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.last = nn.ModuleList(nn.Linear(32, kinds) for _ in range(2))

    def forward(self, x, task: int): return self.last[task](self.body(x))


def pictures(n: int, looks, task: int):
    "Textures in noise; those of the second task are others, and seen in another light."
    kind = torch.randint(0, kinds, (n,))
    x = looks[task, kind] + torch.randn(n, 1, 16, 16)
    return 2*x + 3 if task else x, task, kind


def task_loss(model, batch):
    x, task, kind = batch
    return F.cross_entropy(model(x, task), kind)


@torch.no_grad()
def errors(model, batches, repaired: bool) -> float:
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    wrong = torch.cat([model(x, task).argmax(1) != kind for x, task, kind in batches]).float().mean().item()
    model.train()
    if repaired:
        for part, mode in modes: part.training = mode
    return wrong


def learn_before(model, data):
    "The first task, with all parts free; then the body is frozen, its norms too."
    optimizer = torch.optim.SGD(model.parameters(), lr=.05, momentum=.9)
    for batch in data*3:
        optimizer.zero_grad()
        task_loss(model, batch).backward()
        optimizer.step()
    model.body.requires_grad_(False).eval()


def build(repaired: bool) -> Parts:
    looks, model = torch.randn(2, kinds, 1, 16, 16), Net()
    learn_before(model, [pictures(32, looks, 0) for _ in range(40)])
    return Parts(model, torch.optim.SGD(model.last[1].parameters(), lr=.05, momentum=.9),
                 [pictures(32, looks, 1) for _ in range(40)], call=task_loss, repaired=repaired,
                 valid=[pictures(300, looks, task) for task in (0, 1)])


def train(parts: Parts, record) -> float:
    step = 0
    with record.on(parts.model, parts.optimizer):
        for _ in range(4):
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
                step += 1
                if step % 40 == 0: errors(parts.model, parts.valid, parts.repaired)
    return errors(parts.model, parts.valid, parts.repaired)*kinds/(kinds - 1)
