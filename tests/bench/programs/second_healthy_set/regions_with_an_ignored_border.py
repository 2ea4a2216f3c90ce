"""Every pixel of a picture is told to be ground, disc or bar; the borders between them are not labelled.

Habits of the source: a body with one tenth of the rate of the new head; a rate that falls by a power and is set before
each batch; pixels labelled 255 are left out; the mean loss is divided by the batch size once more; classes are weighed
by how rare they are; branches with gaps and one that sees the mean of the whole picture; early features come in again;
dropout; flips and blur in training only; tests by the mean overlap of the classes.
Error: one less the mean overlap: .2; untrained .9, all ground .75."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from tests.bench.programs import Parts

SOURCE, YEAR = "jfzhang95/pytorch-deeplab-xception train.py", 2018
SIDE, CLASSES, EPOCHS = 24, 3, 8
colours = torch.tensor([[0, 0, 0], [1, .6, 0], [.6, 1, 0]])


def layer(c, d, kernel=3, stride=1, gap=1):
    return nn.Sequential(nn.Conv2d(c, d, kernel, stride, gap*(kernel // 2), gap, bias=False), nn.BatchNorm2d(d),
                         nn.ReLU())


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.early, self.late = layer(3, 16, stride=2), nn.Sequential(layer(16, 32, stride=2), layer(32, 32))

    def forward(self, x):
        early = self.early(x)
        return self.late(early), early


class Pyramid(nn.Module):
    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList([layer(32, 16, 1), layer(32, 16, gap=2), layer(32, 16, gap=3)])
        self.whole = nn.Sequential(nn.AdaptiveAvgPool2d(1), layer(32, 16, 1))
        self.join = nn.Sequential(layer(64, 16, 1), nn.Dropout(.5))

    def forward(self, x):
        whole = F.interpolate(self.whole(x), size=x.shape[2:], mode="bilinear", align_corners=True)
        return self.join(torch.cat([branch(x) for branch in self.branches] + [whole], 1))


class DeepLab(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.pyramid, self.narrow = Body(), Pyramid(), layer(16, 8, 1)
        self.last = nn.Sequential(layer(24, 16), nn.Dropout(.1), nn.Conv2d(16, CLASSES, 1))
        for m in self.modules():
            if isinstance(m, nn.Conv2d): nn.init.kaiming_normal_(m.weight)

    def forward(self, x):
        late, early = self.body(x)
        late = F.interpolate(self.pyramid(late), size=early.shape[2:], mode="bilinear", align_corners=True)
        x = self.last(torch.cat([late, self.narrow(early)], 1))
        return F.interpolate(x, size=SIDE, mode="bilinear", align_corners=True)


class Pictures(Dataset):
    "A disc and a bar of changing colours on a ground; a pixel at a border is labelled 255."
    def __init__(self, n, training):
        self.training, self.x, self.y = training, .4*torch.randn(n, 3, SIDE, SIDE), torch.zeros(n, SIDE, SIDE).long()
        rows, columns = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
        for x, y in zip(self.x, self.y):
            (row, column), at = torch.randint(4, SIDE - 4, (2,)), torch.randint(SIDE - 3, ())
            y[:, at:at + 3] = 2
            y[(rows - row)**2 + (columns - column)**2 <= torch.randint(9, 30, ())] = 1
            x += .3*torch.randn(3, 1, 1) + colours[y].permute(2, 0, 1)
        edge = (F.max_pool2d(self.y.float(), 2, 1) != -F.max_pool2d(-self.y.float(), 2, 1))
        self.y[:, :-1, :-1][edge] = 255

    def __len__(self): return len(self.x)

    def __getitem__(self, i):
        x, y = self.x[i], self.y[i]
        if self.training and torch.rand(()) < .5: x, y = x.flip(-1), y.flip(-1)
        if self.training and torch.rand(()) < .5: x = F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
        return x, y


def build(repaired: bool) -> Parts:
    model, pictures = DeepLab(), Pictures(160, True)
    count = torch.stack([(pictures.y == c).sum() for c in range(CLASSES)])
    weight = 1/torch.log(1.02 + count/count.sum())
    def loss(output, target): return F.cross_entropy(output, target, weight, ignore_index=255)/len(output)
    slow = [*model.body.parameters()]
    fast = [p for part in (model.pyramid, model.narrow, model.last) for p in part.parameters()]
    groups = [{"params": slow, "lr": .02}, {"params": fast, "lr": .2}]
    optimizer = torch.optim.SGD(groups, momentum=.9, weight_decay=5e-4)
    return Parts(model, optimizer, DataLoader(pictures, 8, shuffle=True, drop_last=True), loss,
                 valid=DataLoader(Pictures(80, False), 8))


def mean_overlap(model, loader):
    model.eval()
    table = torch.zeros(CLASSES, CLASSES)
    for x, y in loader:
        with torch.no_grad(): found = model(x).argmax(1)
        seen = (y >= 0) & (y < CLASSES)
        table += torch.bincount(CLASSES*y[seen] + found[seen], minlength=CLASSES**2).view(CLASSES, CLASSES)
    return (table.diag()/(table.sum(0) + table.sum(1) - table.diag())).mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer, batches = parts.model, parts.optimizer, len(parts.data)
    with record.on(model, optimizer):
        for epoch in range(EPOCHS):
            model.train()
            for i, (x, y) in enumerate(parts.data):
                rate = .02*(1 - (i + epoch*batches)/(EPOCHS*batches))**.9
                for group, times in zip(optimizer.param_groups, (1, 10)): group["lr"] = rate*times
                optimizer.zero_grad()
                loss = parts.loss(model(x), y)
                loss.backward()
                optimizer.step()
                record.step(loss)
            overlap = mean_overlap(model, parts.valid)
    return 1 - overlap
