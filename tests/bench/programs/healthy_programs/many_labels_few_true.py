"""A convolutional net finds which of twelve marks are in an image; most labels are zero.

Habits of the source: the asymmetric loss is a sum over images and classes, some hundred at first, its weights are made
with gradients switched off, and easy zeros count nothing; no weight decay on biases and norms, two groups; the schedule
is made for twice the epochs that are run; `model.zero_grad` behind the loss; an average of the weights, tested beside
the model, the better of both counting; images between 0 and 1, not normalised; pieces cut out in training only.
Error: one minus mean average precision over one minus the share of ones: 0.12; untrained 0.93 to 0.98."""
import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "Alibaba-MIIL/ASL train.py", 2021
CLASSES, EPOCHS = 12, 16


def asymmetric(logits, y, gamma_neg=4, gamma_pos=0, clip=.05):
    yes = logits.sigmoid()
    no = (1 - yes + clip).clamp(max=1)
    loss = y*yes.clamp(min=1e-8).log() + (1 - y)*no.clamp(min=1e-8).log()
    with torch.no_grad(): weight = (1 - yes*y - no*(1 - y))**(gamma_pos*y + gamma_neg*(1 - y))
    return -(loss*weight).sum()


def images(n, size=16):
    "Small fixed marks at random places; each image has about one in six."
    marks = torch.rand(CLASSES, 3, 4, 4, generator=torch.Generator().manual_seed(3))
    y, image = (torch.rand(n, CLASSES) < .17).float(), .5 + .1*torch.randn(n, 3, size, size)
    for i, kind in y.nonzero().tolist():
        a, b = torch.randint(0, size - 4, (2,)).tolist()
        image[i, :, a:a + 4, b:b + 4] = marks[kind]
    return image.clamp(0, 1), y


def precision(score, y):
    "Mean average precision over the classes."
    hits = y.gather(0, score.argsort(0, descending=True))
    rate = hits.cumsum(0)/torch.arange(1, len(y) + 1)[:, None]
    return ((rate*hits).sum(0)/hits.sum(0).clamp(min=1)).mean().item()


def groups(model, decay):
    apart = [p for p in model.parameters() if p.ndim == 1], [p for p in model.parameters() if p.ndim > 1]
    return [{"params": apart[0], "weight_decay": 0.}, {"params": apart[1], "weight_decay": decay}]


def build(repaired: bool) -> Parts:
    model = nn.Sequential(nn.Conv2d(3, 24, 4), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 24, 3), nn.BatchNorm2d(24),
                          nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(24, CLASSES))
    data = DataLoader(TensorDataset(*images(600)), batch_size=50, shuffle=True)
    valid = DataLoader(TensorDataset(*images(300)), batch_size=100)
    return Parts(model, torch.optim.Adam(groups(model, 1e-4), lr=1e-2, weight_decay=0), data, asymmetric, valid=valid)


def train(parts: Parts, record) -> float:
    model, optimizer, best = parts.model, parts.optimizer, 0.
    average = copy.deepcopy(model).eval()
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, steps_per_epoch=len(parts.data),
                                                   epochs=EPOCHS, pct_start=.2)
    with record.on(model, optimizer):
        for _ in range(EPOCHS//2):
            for image, y in parts.data:
                a, b = torch.randint(0, 12, (2,)).tolist()
                image = image.clone()
                image[:, :, a:a + 4, b:b + 4] = .5
                loss = parts.loss(model(image).float(), y)
                model.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                record.step(loss)
                with torch.no_grad():
                    for kept, new in zip(average.state_dict().values(), model.state_dict().values()):
                        kept.copy_(.97*kept + .03*new)
            model.eval()
            with torch.no_grad():
                image, y = parts.valid.dataset.tensors
                best = max(best, precision(model(image).sigmoid(), y), precision(average(image).sigmoid(), y))
            model.train()
    return (1 - best)/(1 - y.mean().item())
