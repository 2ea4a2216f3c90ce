"""A detector finds a filled or a hollow rectangle, from two priors in each cell of a grid.

Habits of the source: three groups of parameters, of which only the weights decay; rates and momentum are warmed up
batch by batch, those of the biases from above; gradients of more and more batches are added up and clipped; the loss
is that of a mean, times the batch size; the objectness is taught the overlap that was reached; the last biases start
at the rates of the classes; images without an object are in the set; tests use a running average of the weights and
buffers.
Error: share of objects that the surest box misses (overlap below one half, or the wrong class): .02; untrained .99."""
import math
from copy import deepcopy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.bench.programs import Parts

SOURCE, YEAR = "ultralytics/yolov5 train.py", 2022
STRIDE, GRID, CLASSES, BATCH, NOMINAL, EPOCHS = 4, 4, 2, 8, 16, 9
priors = torch.tensor([[1.4, 1.4], [2.2, 2.2]])    # in cells


def conv(c, d, stride=1):
    return nn.Sequential(nn.Conv2d(c, d, 3, stride, 1, bias=False), nn.BatchNorm2d(d, eps=1e-3, momentum=.03),
                         nn.SiLU(inplace=True))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(conv(1, 12, 2), conv(12, 24, 2), conv(24, 24), conv(24, 24))
        self.detect = nn.Conv2d(24, len(priors)*(5 + CLASSES), 1)
        bias = self.detect.bias.data.view(len(priors), -1)
        bias[:, 4] += math.log(1/GRID**2)
        bias[:, 5:] += math.log(.6/(CLASSES - .99999))

    def forward(self, x): return self.detect(self.body(x)).unflatten(1, (len(priors), -1)).permute(0, 1, 3, 4, 2)


def overlap(a, b):
    "Of boxes as centre and size, less the empty part of the box around both."
    low, high = [torch.stack([box[..., :2] + sign*box[..., 2:]/2 for box in (a, b)]) for sign in (-1, 1)]
    both = (high.amin(0) - low.amax(0)).clamp(min=0).prod(-1)
    either, around = a[..., 2:].prod(-1) + b[..., 2:].prod(-1) - both, (high.amax(0) - low.amin(0)).prod(-1)
    return both/(either + 1e-7), (around - either)/(around + 1e-7)


def boxes_of(p, prior): return torch.cat([p[..., :2].sigmoid()*2 - .5, (p[..., 2:4].sigmoid()*2)**2*prior], -1)


def loss(output, targets):
    (image, kind), box = targets[:, :2].long().T, targets[:, 2:]
    wanted, of_box, of_kind = torch.zeros(output.shape[:-1]), 0, 0
    for k, prior in enumerate(priors):
        ratio = box[:, 2:]/prior
        fits = torch.max(ratio, 1/ratio).amax(1) < 4
        if not fits.any(): continue
        cell = box[fits, :2].long()
        at = image[fits], k, cell[:, 1], cell[:, 0]
        p = output[at]
        same, empty = overlap(boxes_of(p, prior), torch.cat([box[fits, :2] - cell, box[fits, 2:]], 1))
        of_box = of_box + (1 - same + empty).mean()
        of_kind = of_kind + F.binary_cross_entropy_with_logits(p[:, 5:], F.one_hot(kind[fits], CLASSES).float())
        wanted[at] = same.detach()
    return (.05*of_box + F.binary_cross_entropy_with_logits(output[..., 4], wanted) + .5*of_kind)*len(output)


def picture(empty):
    "An image and its objects: kind, centre and size, in cells."
    x, size = .3*torch.rand(1, 16, 16), torch.randint(5, 11, (2,))
    if torch.rand(()) < empty: return x, torch.zeros(0, 5)
    (w, h), (left, top), kind = size.tolist(), (torch.rand(2)*(16 - size)).long().tolist(), int(torch.rand(()) < .5)
    x[:, top:top + h, left:left + w] += .7
    if kind: x[:, top + 1:top + h - 1, left + 1:left + w - 1] -= .7
    return x, torch.tensor([[kind, (left + w/2)/STRIDE, (top + h/2)/STRIDE, w/STRIDE, h/STRIDE]])


def together(pictures):
    numbered = [F.pad(targets, (1, 0), value=i) for i, (_, targets) in enumerate(pictures)]
    return torch.stack([x for x, _ in pictures]), torch.cat(numbered)


def build(repaired: bool) -> Parts:
    model = Detector()
    biases, weights, norms = [], [], []
    for name, p in model.named_parameters():
        (biases if name.endswith("bias") else weights if p.ndim > 1 else norms).append(p)
    optimizer = torch.optim.SGD(biases, lr=.02, momentum=.937, nesterov=True)
    optimizer.add_param_group({"params": weights, "weight_decay": 5e-4})
    optimizer.add_param_group({"params": norms})
    data = DataLoader([picture(.1) for _ in range(320)], BATCH, shuffle=True, collate_fn=together)
    valid = DataLoader([picture(0) for _ in range(200)], 2*BATCH, collate_fn=together)
    return Parts(model, optimizer, data, loss, valid=valid)


def missed(model, valid):
    wrong = []
    for x, targets in valid:
        with torch.no_grad(): p = model(x)
        cells = torch.stack(torch.meshgrid(torch.arange(GRID), torch.arange(GRID), indexing="xy"), -1)
        box = boxes_of(p, priors[:, None, None]) + F.pad(cells, (0, 2))
        sure = (p[..., 4:5].sigmoid()*p[..., 5:].sigmoid()).flatten(1)
        best, of = sure.argmax(1), torch.arange(len(x))
        same, _ = overlap(box.flatten(1, 3)[of, best // CLASSES], targets[:, 2:])
        wrong.append((same < .5) | (best % CLASSES != targets[:, 1]))
    return torch.cat(wrong).float().mean().item()


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    average, updates, warm, last = deepcopy(model).eval(), 0, 3*len(parts.data), -1
    def part(epoch): return 1 - .9*(1 - math.cos(epoch*math.pi/EPOCHS))/2
    with record.on(model, optimizer):
        for epoch in range(EPOCHS):
            model.train()
            for group in optimizer.param_groups: group["lr"] = .02*part(epoch)
            optimizer.zero_grad()
            for i, (x, targets) in enumerate(parts.data, epoch*len(parts.data)):
                accumulate = NOMINAL/BATCH
                if i <= warm:
                    accumulate = max(1, round(1 + (accumulate - 1)*i/warm))
                    for start, group in zip((.1, 0, 0), optimizer.param_groups):
                        group["lr"] = start + (.02*part(epoch) - start)*i/warm
                        group["momentum"] = .8 + (.937 - .8)*i/warm
                value = parts.loss(model(x), targets)
                value.backward()
                if i - last < accumulate: continue
                torch.nn.utils.clip_grad_norm_(model.parameters(), 10)
                optimizer.step()
                optimizer.zero_grad()
                record.step(value)
                last, updates = i, updates + 1
                keep = .99*(1 - math.exp(-updates/20))
                for mine, its in zip(average.state_dict().values(), model.state_dict().values()):
                    if mine.is_floating_point(): mine.mul_(keep).add_(its.detach(), alpha=1 - keep)
    return missed(average, parts.valid)
