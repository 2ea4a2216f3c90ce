"""Kinds of which some are a hundred times as frequent as others, with a margin that is wider the rarer the kind.

Habits of the source: the margin is taken from the score of the true kind, only for the loss; weights and features have
length one and the scores are multiplied by thirty; in the last part of the run the kinds are weighed by how many
examples they are worth, not before, and so the loss is made anew each epoch; the first epochs have a rising rate, late
ones a hundredth of it; the test set has as many of each kind. The loss is several times that of a guess at first.
Error on the balanced set held back: .18; untrained .89, by chance .83."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "kaidic/LDAM-DRW cifar_train.py", 2019
KINDS, EPOCHS, RATE = 6, 24, .1
numbers = [int(300*.01**(k/(KINDS - 1))) for k in range(KINDS)]
centers = torch.randn(KINDS, 2, 16, generator=torch.Generator().manual_seed(0))


class NormedLinear(nn.Module):
    def __init__(self, c, d):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(c, d).uniform_(-1, 1).renorm_(2, 1, 1e-5).mul_(1e5))

    def forward(self, x): return F.normalize(x, dim=1) @ F.normalize(self.weight, dim=0)


class LDAMLoss(nn.Module):
    def __init__(self, most=.5, scale=30, weight=None):
        super().__init__()
        margins = torch.tensor(numbers)**-.25
        self.margins, self.scale, self.weight = margins*most/margins.max(), scale, weight

    def forward(self, output, target):
        true = F.one_hot(target, KINDS).bool()
        output = torch.where(true, output - self.margins[target][:, None], output)
        return F.cross_entropy(self.scale*output, target, weight=self.weight)


def examples(counts):
    "Each kind lies in two places."
    y = torch.arange(KINDS).repeat_interleave(torch.tensor(counts))
    return centers[y, torch.randint(2, y.shape)] + .8*torch.randn(len(y), 16), y


def weight_of(epoch):
    "By the effective number of examples, late in the run."
    beta = (0, .999)[epoch >= .8*EPOCHS]
    weight = (1 - beta)/(1 - torch.tensor([beta**n for n in numbers]))
    return weight/weight.sum()*KINDS


def build(repaired: bool) -> Parts:
    def layer(c, d): return nn.Sequential(nn.Linear(c, d), nn.BatchNorm1d(d), nn.ReLU())
    model = nn.Sequential(layer(16, 48), layer(48, 32), NormedLinear(32, KINDS))
    for m in model.modules():
        if isinstance(m, nn.Linear): nn.init.kaiming_normal_(m.weight)
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=.9, weight_decay=2e-4)
    return Parts(model, optimizer, DataLoader(TensorDataset(*examples(numbers)), 32, shuffle=True), LDAMLoss(),
                 valid=DataLoader(TensorDataset(*examples([100]*KINDS)), 100))


def validate(model, loader):
    model.eval()
    with torch.no_grad(): wrong = torch.cat([model(x).argmax(1) != y for x, y in loader])
    return wrong.float().mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer):
        for epoch in range(EPOCHS):
            part = (epoch + 1)/5 if epoch < 5 else 1e-4 if epoch > .9*EPOCHS else 1e-2 if epoch > .8*EPOCHS else 1
            for group in optimizer.param_groups: group["lr"] = RATE*part
            criterion = LDAMLoss(weight=weight_of(epoch))
            model.train()
            for x, y in parts.data:
                loss = criterion(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
            error = validate(model, parts.valid)
    return error
