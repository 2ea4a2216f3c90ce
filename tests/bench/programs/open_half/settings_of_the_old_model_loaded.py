"""A model that is loaded takes over the old optimizer's settings, in which the parameters of the old network are.

The report: a model that is loaded does not go on learning. The authors found that the list of parameters belongs to the
old object; with the list of the new network put in, training goes on."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "kitzeslab/opensoundscape#351", 2021
AREA, CAUSE = "parameters", "other parameters in the optimizer"
TRUE = {"loss does not fall", "cannot learn by heart", "not in the optimizer"}
PLACE = ("features", "classifier")

bands, frames, birds = 16, 16, 4


class Calls(nn.Module):
    "Which birds call in a spectrogram."
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                                      nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(2), nn.Flatten())
        self.classifier = nn.Linear(64, birds)

    def forward(self, x): return self.classifier(self.features(x))


class Trainer:
    "A network and how it is trained."
    def __init__(self):
        self.network = Calls()
        self.settings = {"params": list(self.network.parameters()), "lr": 3e-2, "momentum": .9, "weight_decay": 1e-4}

    def optimizer(self):
        settings = dict(self.settings)
        return torch.optim.SGD(settings.pop("params"), **settings)

    def saved(self): return copy.deepcopy({"weights": self.network.state_dict(), "settings": self.settings})

    @classmethod
    def loaded(cls, saved, repaired: bool):
        trainer = cls()
        trainer.network.load_state_dict(saved["weights"])
        trainer.settings = saved["settings"]
        if repaired: trainer.settings["params"] = list(trainer.network.parameters())
        return trainer


def recordings(n: int):
    "Each bird has a pitch and a way to sing; several may sing at once."
    there = (torch.rand(n, birds) < .4).float()
    x = .4*torch.randn(n, bands, frames)
    for bird in range(birds):
        time = torch.arange(6.)
        pitch = 2 + 3*bird + (time if bird % 2 else 5 - time)/2
        call = (-(torch.arange(bands)[:, None] - pitch)**2).exp()
        for i in there[:, bird].nonzero()[:, 0].tolist():
            start = torch.randint(0, frames - 6, ()).item()
            x[i, :, start:start + 6] += 1.5*call
    return x[:, None], there


def train_on(model, optimizer, loss, batches, heard):
    for x, there in batches:
        optimizer.zero_grad()
        found = loss(model(x), there)
        found.backward()
        optimizer.step()
        heard(found)


def build(repaired: bool) -> Parts:
    data, loss = [recordings(32) for _ in range(40)], F.binary_cross_entropy_with_logits
    trainer = Trainer()
    train_on(trainer.network, trainer.optimizer(), loss, data[:10], lambda _: None)
    trainer = Trainer.loaded(trainer.saved(), repaired)
    return Parts(trainer.network, trainer.optimizer(), data, loss, valid=[recordings(400)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(6): train_on(parts.model, parts.optimizer, parts.loss, parts.data, record.step)
    x, there = parts.valid[0]
    with torch.no_grad(): return (parts.loss(parts.model(x), there)/.673).item()
