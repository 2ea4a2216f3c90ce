"""A convolutional net learns which of its channels it does not need, loses them, and is trained on.

Habits of the source: the sign of each scale of a norm is added to its gradient, after the backward pass and outside
the loss; scales start at one half; the channels with the smallest scales of the whole net are cut off and the rest
becomes a smaller net, with an optimizer of its own that starts anew (only the first run is recorded); SGD at .1, a
tenth at the half and at three quarters; pictures are padded and cropped in training; the last layer starts with a
deviation of .01.
Error of the small net on pictures held back: .01; by chance .83, untrained .87."""
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from tests.bench.programs import Parts

SOURCE, YEAR = "Eric-mingjie/network-slimming main.py", 2018
KINDS, SIDE, EPOCHS, SPARSE = 6, 12, 6, 2e-3


class VGG(nn.Module):
    def __init__(self, sizes=(16, 24, 24)):
        super().__init__()
        layers, c = [], 1
        for d, pool in zip(sizes, (True, True, False)):
            layers += [nn.Conv2d(c, d, 3, padding=1, bias=False), nn.BatchNorm2d(d), nn.ReLU(inplace=True)]
            if pool: layers.append(nn.MaxPool2d(2))
            c = d
        self.feature, self.classifier = nn.Sequential(*layers), nn.Linear(c, KINDS)
        for m in self.modules():
            if isinstance(m, nn.Conv2d): nn.init.normal_(m.weight, 0, math.sqrt(2/(9*m.out_channels)))
            if isinstance(m, nn.BatchNorm2d): nn.init.constant_(m.weight, .5)
        nn.init.normal_(self.classifier.weight, 0, .01)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, x): return self.classifier(F.avg_pool2d(self.feature(x), 3).flatten(1))

    def norms(self): return [m for m in self.feature if isinstance(m, nn.BatchNorm2d)]


def smaller(model, part=.4):
    "The same net without the channels whose scales are smallest; its weights are copies."
    scales = torch.cat([norm.weight.data.abs() for norm in model.norms()])
    limit = scales.sort().values[int(part*len(scales))]
    keep = [norm.weight.data.abs() >= min(limit, norm.weight.data.abs().max()) for norm in model.norms()]
    new, before = VGG([int(k.sum()) for k in keep]), torch.tensor([True])
    convs = [[m for m in net.feature if isinstance(m, nn.Conv2d)] for net in (model, new)]
    for k, old_conv, new_conv, old, norm in zip(keep, *convs, model.norms(), new.norms()):
        new_conv.weight.data = old_conv.weight.data[k][:, before].clone()
        for name in ("weight", "bias", "running_mean", "running_var"):
            getattr(norm, name).data = getattr(old, name).data[k].clone()
        before = k
    new.classifier.weight.data = model.classifier.weight.data[:, before].clone()
    new.classifier.bias.data = model.classifier.bias.data.clone()
    return new


class Pictures(Dataset):
    "Waves in three directions, narrow or wide."
    def __init__(self, n, training=False):
        self.training, self.y, places = training, torch.randint(KINDS, (n,)), torch.arange(SIDE)
        kind = self.y[:, None, None]
        angle, width = (kind % 3)*math.pi/4 + .15*torch.randn(n, 1, 1), 1.4 - .6*(kind // 3)
        wave = (width*(angle.cos()*places[:, None] + angle.sin()*places) + 6.3*torch.rand(n, 1, 1)).sin()
        self.x = (wave + .7*torch.randn(n, SIDE, SIDE))[:, None]

    def __len__(self): return len(self.x)

    def __getitem__(self, i):
        if not self.training: return self.x[i], self.y[i]
        top, left = torch.randint(0, 5, (2,)).tolist()
        return F.pad(self.x[i], (2, 2, 2, 2))[:, top:top + SIDE, left:left + SIDE], self.y[i]


def sgd(model): return torch.optim.SGD(model.parameters(), lr=.1, momentum=.9, weight_decay=1e-4)


def build(repaired: bool) -> Parts:
    model = VGG()
    data, valid = [DataLoader(Pictures(n, n == 384), 32, shuffle=True) for n in (384, 256)]
    return Parts(model, sgd(model), data, F.cross_entropy, valid=valid)


def test(model, loader):
    model.eval()
    with torch.no_grad(): wrong = torch.cat([model(x).argmax(1) != y for x, y in loader])
    return wrong.float().mean().item()


def trained(parts, model, optimizer, sparse, step):
    for epoch in range(EPOCHS):
        if epoch in (EPOCHS // 2, EPOCHS*3 // 4): optimizer.param_groups[0]["lr"] *= .1
        model.train()
        for x, y in parts.data:
            optimizer.zero_grad()
            loss = parts.loss(model(x), y)
            loss.backward()
            for norm in model.norms(): norm.weight.grad.add_(sparse*norm.weight.data.sign())
            optimizer.step()
            step(loss)
        error = test(model, parts.valid)
    return error


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        trained(parts, parts.model, parts.optimizer, SPARSE, record.step)
    model = smaller(parts.model)
    return trained(parts, model, sgd(model), 0, lambda loss: None)
