"""A small convolutional net learns signals from labels, and from what a larger net has in its middle.

Habits of the source: the teacher is trained before, stays in eval mode while all others are set to training, and its
features are cut from the graph; a list of modules holds student, regressor and teacher, and the optimizer has the
first two; the regressor, which is thrown away later, makes the student's features as many as the teacher's; their
squared error counts a hundred times, the divergence from the teacher's answers not at all, though it is computed; SGD,
a tenth at milestones, and five ten-thousandths of decay.
Error of the student on signals held back: .11; untrained .88."""
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "HobbitLong/RepDistiller helper/loops.py", 2019
KINDS, LENGTH, EPOCHS, HEAT = 6, 32, 8, 4


class Net(nn.Module):
    def __init__(self, size):
        super().__init__()
        def layer(c, d): return nn.Sequential(nn.Conv1d(c, d, 5, 2, 2, bias=False), nn.BatchNorm1d(d))
        self.first, self.second, self.third = layer(1, size), layer(size, 2*size), layer(2*size, 2*size)
        self.last = nn.Linear(2*size, KINDS)
        for m in self.modules():
            if isinstance(m, nn.Conv1d): nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x, features=False):
        middle = self.second(self.first(x).relu()).relu()
        output = self.last(self.third(middle).relu().mean(2))
        return (middle, output) if features else output


class Regressor(nn.Module):
    def __init__(self, c, d):
        super().__init__()
        self.conv, self.bn = nn.Conv1d(c, d, 1), nn.BatchNorm1d(d)

    def forward(self, x): return self.bn(self.conv(x)).relu()


def signals(n):
    "A sine, a saw or a square, slow or quick, anywhere, with noise."
    kind, phase = torch.randint(KINDS, (n,)), torch.rand(n, 1)
    turn = (phase + torch.arange(LENGTH)*(.07 + .06*(kind // 3))[:, None]) % 1
    shapes = torch.stack([(2*math.pi*turn).sin(), 2*turn - 1, (turn - .5).sign()], 1)
    return shapes[torch.arange(n), kind % 3][:, None] + .4*torch.randn(n, 1, LENGTH), kind


def three_losses(modules, batch):
    x, y = batch
    student, regressor, teacher = modules
    middle, output = student(x, features=True)
    with torch.no_grad(): hint, answer = teacher(x, features=True)
    divergence = F.kl_div((output/HEAT).log_softmax(1), (answer/HEAT).softmax(1), reduction="batchmean")*HEAT**2
    return F.cross_entropy(output, y) + 0*divergence + 100*F.mse_loss(regressor(middle), hint)


def taught(data):
    "A teacher that was trained on labels alone."
    teacher = Net(24)
    optimizer = torch.optim.SGD(teacher.parameters(), lr=.05, momentum=.9, weight_decay=5e-4)
    for epoch in range(5):
        if epoch == 4: optimizer.param_groups[0]["lr"] *= .1
        for x, y in data:
            optimizer.zero_grad()
            F.cross_entropy(teacher(x), y).backward()
            optimizer.step()
    return teacher.eval()


def build(repaired: bool) -> Parts:
    data, valid = [DataLoader(TensorDataset(*signals(n)), 64, shuffle=n == 960) for n in (960, 400)]
    student, regressor, teacher = Net(6), Regressor(12, 48), taught(data)
    modules = nn.ModuleList([student, regressor, teacher])
    trained = nn.ModuleList([student, regressor]).parameters()
    return Parts(modules, torch.optim.SGD(trained, lr=.05, momentum=.9, weight_decay=5e-4), data, call=three_losses,
                 valid=valid)


def validate(model, loader):
    model.eval()
    with torch.no_grad(): wrong = torch.cat([model(x).argmax(1) != y for x, y in loader])
    return wrong.float().mean().item()


def train(parts: Parts, record) -> float:
    modules, optimizer = parts.model, parts.optimizer
    with record.on(modules, optimizer):
        for epoch in range(EPOCHS):
            if epoch in (5, 7): optimizer.param_groups[0]["lr"] *= .1
            for module in modules: module.train()
            modules[-1].eval()
            for batch in parts.data:
                loss = parts.call(modules, batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
            error = validate(modules[0], parts.valid)
    return error
