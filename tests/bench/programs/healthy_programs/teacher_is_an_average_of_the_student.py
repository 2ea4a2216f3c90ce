"""A student with few labels follows a teacher that is the running average of its own weights.

Habits of the source: most of the labels are -1 and ignored, the sum over the others is divided by the whole batch; each
batch has a fixed number of labelled examples; the teacher sees another augmentation, stays in training mode during
training and has no gradients; its average is a true mean at first; the weight of the agreement grows from almost zero,
and the rate too, which then falls as a cosine; Nesterov momentum.
Score: wrong kinds of held-back pictures by the teacher, by chance. Below .3; about 1 for the untrained teacher."""
import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "CuriousAI/mean-teacher pytorch/main.py", 2017
KINDS, LABELLED, BATCH, EPOCHS, RATE = 5, 40, 64, 12, .1


def net():
    return nn.Sequential(nn.Conv1d(1, 16, 5, padding=2), nn.BatchNorm1d(16), nn.LeakyReLU(.1), nn.MaxPool1d(2),
                         nn.Dropout(.2), nn.Conv1d(16, 32, 5, padding=2), nn.BatchNorm1d(32), nn.LeakyReLU(.1),
                         nn.AdaptiveAvgPool1d(2), nn.Flatten(), nn.Linear(64, KINDS))


def curves(n: int):
    "Waves of one of a few shapes, anywhere."
    kind, t = torch.randint(KINDS, (n,)), torch.arange(32.)
    phase = 2*torch.pi*torch.rand(n, 1)
    turns = (2 + kind[:, None])*t*2*torch.pi/32 + phase
    return (turns.sin() + .4*torch.randn(n, 32)).unsqueeze(1), kind


def augmented(x):
    return x.roll(torch.randint(-4, 5, ()).item(), 2)*(.8 + .4*torch.rand(len(x), 1, 1)) + .2*torch.randn_like(x)


class Batches:
    "Each batch has sixteen labelled examples, drawn again and again, and others once in an epoch."
    def __init__(self, x, y): self.x, self.y = x, y

    def __len__(self): return (len(self.x) - LABELLED)//(BATCH - 16)

    def __iter__(self):
        for rows in (LABELLED + torch.randperm(len(self.x) - LABELLED)).split(BATCH - 16)[:len(self)]:
            rows = torch.cat([rows, torch.randperm(LABELLED)[:16]])
            yield augmented(self.x[rows]), augmented(self.x[rows]), self.y[rows]


def build(repaired: bool) -> Parts:
    model, (x, y) = net(), curves(1000)
    teacher = copy.deepcopy(model).requires_grad_(False)
    y[LABELLED:] = -1
    def call(model, batch, weight: float = 1.):
        mine, its, y = batch
        wanted, said = teacher(its), model(mine)
        of_labels = F.cross_entropy(said, y, ignore_index=-1, reduction="sum")/len(y)
        return of_labels + weight*F.mse_loss(said.softmax(1), wanted.softmax(1).detach(), reduction="sum")/KINDS/len(y)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=.9, weight_decay=1e-4, nesterov=True)
    parts = Parts(model, optimizer, Batches(x, y), call=call, valid=[(x, x, y) for x, y in [curves(500)]])
    parts.teacher = teacher
    return parts


def train(parts: Parts, record) -> float:
    model, teacher, optimizer, step = parts.model, parts.teacher, parts.optimizer, 0
    with record.on(model, optimizer):
        for epoch in range(EPOCHS):
            model.train()
            teacher.train()
            ramp = math.exp(-5*(1 - min(epoch/5, 1))**2)
            for i, batch in enumerate(parts.data):
                now = epoch + i/len(parts.data)
                optimizer.param_groups[0]["lr"] = RATE*min(now/2, 1)*.5*(1 + math.cos(math.pi*now/(EPOCHS + 1)))
                loss = parts.call(model, batch, 10*ramp)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                part = min(1 - 1/(step + 1), .97)
                for mine, its in zip(teacher.parameters(), model.parameters()): mine.lerp_(its.data, 1 - part)
                record.step(loss)
            model.eval()
            teacher.eval()
            x, _, y = parts.valid[0]
            with torch.no_grad(): wrong = (teacher(x).argmax(1) != y).float().mean().item()
    return wrong*KINDS/(KINDS - 1)
