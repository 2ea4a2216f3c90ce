"""Forty labelled pictures and many without labels: a sure guess on a weak view is the label of a strong one.

Habits of the source: labelled, weak and strong views go through the net in one batch; the guess is cut from the graph
in place; guesses below .95 do not count, so the second loss is about zero at first; seven times as many pictures
without labels; SGD with Nesterov's momentum, no decay of norms and biases; the rate follows 7/16 of a cosine, batch by
batch; gradients are cleared after the step; tests use a running average of weights and buffers.
Error on pictures held back: .02 to .07; untrained and by chance .75."""
import copy
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, RandomSampler

from tests.bench.programs import Parts

SOURCE, YEAR = "kekmodel/FixMatch-pytorch train.py", 2020
KINDS, SIDE, EPOCHS, STEPS, BATCH, MU = 4, 12, 6, 15, 8, 7


class Block(nn.Module):
    "A norm comes before each convolution."
    def __init__(self, c, d, stride):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(c, momentum=.01), nn.Conv2d(c, d, 3, stride, 1, bias=False)
        self.bn2, self.conv2 = nn.BatchNorm2d(d, momentum=.01), nn.Conv2d(d, d, 3, 1, 1, bias=False)
        self.short = nn.Conv2d(c, d, 1, stride, bias=False)

    def forward(self, x):
        x = F.leaky_relu(self.bn1(x), .1, inplace=True)
        return self.short(x) + self.conv2(F.leaky_relu(self.bn2(self.conv1(x)), .1, inplace=True))


def net():
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1, bias=False), Block(8, 12, 2), Block(12, 24, 2),
                          nn.BatchNorm2d(24, momentum=.01), nn.LeakyReLU(.1, True), nn.AdaptiveAvgPool2d(1),
                          nn.Flatten(), nn.Linear(24, KINDS))
    for m in model.modules():
        if isinstance(m, nn.Conv2d): nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="leaky_relu")
    return model


def pictures(n):
    "Waves in one of four directions, with noise."
    kind, places = torch.arange(n) % KINDS, torch.arange(SIDE)
    angle = kind[:, None, None]*math.pi/4 + .15*torch.randn(n, 1, 1)
    return ((angle.cos()*places[:, None] + angle.sin()*places + 6.3*torch.rand(n, 1, 1)).sin()
            + .8*torch.randn(n, SIDE, SIDE))[:, None], kind


def weak(x): return torch.roll(x, torch.randint(-2, 3, (2,)).tolist(), (1, 2))


def strong(x):
    x = weak(x)*(.5 + torch.rand(())) + .5*torch.randn(()) + .3*torch.rand(())*torch.randn_like(x)
    top, left = torch.randint(0, SIDE - 4, (2,)).tolist()
    x[:, top:top + 5, left:left + 5] = 0
    return x


class Views(Dataset):
    def __init__(self, x, y=None): self.x, self.y = x, y

    def __len__(self): return len(self.x)

    def __getitem__(self, i):
        return weak(self.x[i]), strong(self.x[i]) if self.y is None else self.y[i]


class Pairs:
    "Batches with labels beside those without, `STEPS` of them."
    def __init__(self):
        (x, y), (more, _) = pictures(40), pictures(800)
        self.with_labels = DataLoader(Views(x, y), BATCH, sampler=RandomSampler(x, True, STEPS*BATCH))
        self.without = DataLoader(Views(more), MU*BATCH, sampler=RandomSampler(more, True, STEPS*MU*BATCH))

    def __len__(self): return STEPS

    def __iter__(self): return zip(self.with_labels, self.without)


def both_losses(model, batch):
    (x, y), (calm, wild) = batch
    output = model(torch.cat([x, calm, wild]))
    of_calm, of_wild = output[len(x):].chunk(2)
    sure, guess = of_calm.detach().softmax(-1).max(-1)
    of_wild = F.cross_entropy(of_wild, guess, reduction="none")*(sure >= .95).float()
    return F.cross_entropy(output[:len(x)], y) + of_wild.mean()


def build(repaired: bool) -> Parts:
    model = net()
    optimizer = torch.optim.SGD([{"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 5e-4},
                                 {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0}],
                                lr=.05, momentum=.9, nesterov=True)
    return Parts(model, optimizer, Pairs(), call=both_losses)


def train(parts: Parts, record) -> float:
    model, optimizer, average = parts.model, parts.optimizer, copy.deepcopy(parts.model).eval()
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: max(0, math.cos(math.pi*7*i/(16*EPOCHS*STEPS))))
    (x, y), wrong = pictures(400), 1
    model.zero_grad()
    with record.on(model, optimizer):
        for _ in range(EPOCHS):
            model.train()
            for batch in parts.data:
                loss = parts.call(model, batch)
                loss.backward()
                optimizer.step()
                schedule.step()
                with torch.no_grad():
                    for mine, its in zip(average.state_dict().values(), model.state_dict().values()):
                        mine.copy_(.95*mine + .05*its)
                model.zero_grad()
                record.step(loss)
            with torch.no_grad(): wrong = (average(x).argmax(1) != y).float().mean().item()
    return wrong
