"""The images of one domain lie between 0 and 1, those of the other one between 0 and 255.

The report: many users saw that the adaptation of a net for digits to a second data set makes it worse, down to 8 %. An
author of a change found that the loader brings the images of the first set between 0 and 1 and leaves the second as it
is; with both in one range the adaptation reaches 97 %."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "corenel/pytorch-adda#29", 2022
AREA, CAUSE = "data and labels", "inputs not scaled"
TRUE = set()
PLACE = ("target",)


def encoder():
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1),
                         nn.Dropout2d(.1), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(144, 32))


def digits(n: int, shapes, thick: bool):
    "Digits as grey values from 0 to 255; those of the second set are thicker and darker."
    label = torch.randint(0, 6, (n,))
    image = shapes[label]
    if thick: image = 1.28*F.avg_pool2d(image, 3, 1, 1)
    return (255*(image + .15*torch.randn(n, 1, 12, 12))).clamp(0, 255), label


def pretrained(model, images, label):
    "The encoder of the first domain and the classifier, which learn before the adaptation."
    both = [*model["source"].parameters(), *model["classifier"].parameters()]
    optimizer = torch.optim.Adam(both, lr=2e-3)
    for _ in range(8):
        for image, wanted in zip(images.split(64), label.split(64)):
            optimizer.zero_grad()
            F.cross_entropy(model["classifier"](model["source"](image)), wanted).backward()
            optimizer.step()


def critic_loss(model, batch):
    "The critic tells the features of the first domain from those of the second."
    features = torch.cat([model["source"](batch[0]), model["target"](batch[1])]).detach()
    domain = torch.cat([torch.ones(len(batch[0])), torch.zeros(len(batch[1]))]).long()
    return F.cross_entropy(model["critic"](features), domain)


def encoder_loss(model, batch):
    "The features of the second domain shall be taken for those of the first."
    return F.cross_entropy(model["critic"](model["target"](batch[1])), torch.ones(len(batch[1])).long())


def build(repaired: bool) -> Parts:
    shapes = F.interpolate((torch.rand(6, 1, 4, 4) < .5).float(), scale_factor=3)
    first, label = digits(640, shapes, False)
    second, test, new = (digits(n, shapes, thick) for n, thick in ((640, True), (400, True), (64, False)))
    scale = 1/255 if repaired else 1.
    critic = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    model = nn.ModuleDict({"source": encoder(), "classifier": nn.Sequential(nn.ReLU(), nn.Linear(32, 6)),
                           "critic": critic})
    pretrained(model, first/255, label)
    model["target"] = copy.deepcopy(model["source"])
    optimizers = [torch.optim.Adam(model["target"].parameters(), lr=2e-3, betas=(.5, .9)),
                  torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(.5, .9))]
    data = list(zip((first/255).split(64), (second[0]*scale).split(64)))
    parts = Parts(model, optimizers, data, call=encoder_loss, valid=[(new[0]/255, test[0][:64]*scale)])
    parts.test = test[0]*scale, test[1]
    return parts


def train(parts: Parts, record) -> float:
    model, (of_target, of_critic) = parts.model, parts.optimizer
    model.train()
    with record.on(model, parts.optimizer):
        for _ in range(14):
            for batch in parts.data:
                of_critic.zero_grad()
                critic_loss(model, batch).backward()
                of_critic.step()
                of_critic.zero_grad()
                of_target.zero_grad()
                loss = parts.call(model, batch)
                loss.backward()
                of_target.step()
                record.step(loss)
    model.eval()
    image, label = parts.test
    with torch.no_grad(): found = model["classifier"](model["target"](image)).argmax(1)
    return (found != label).float().mean().item()
