"""kornia: digits are augmented in batches on the device by modules of the library.

After the tutorial "Kornia and PyTorch Lightning" / "Data augmentation semantic": an `AugmentationSequential` changes
the images in training, the net sees what comes out. Error: wrong answers on digits held back."""
import kornia.augmentation as K
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.libraries._data import digits, split, wrong
from tests.bench.programs import Parts

SOURCE = "kornia: data augmentation on the device"
PACKAGES = ("kornia", "scikit-learn")


class Net(nn.Module):
    "Augments its images in training only."
    def __init__(self):
        super().__init__()
        self.augmented = K.AugmentationSequential(K.RandomAffine(10., translate=(.05, .05), p=.7),
                                                  K.RandomErasing(p=.3, scale=(.02, .1)),
                                                  K.RandomGaussianNoise(std=.05, p=.3), data_keys=["input"])
        self.net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                                 nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                                 nn.Linear(128, 10))

    def forward(self, x):
        if self.training:
            with torch.no_grad(): x = self.augmented(x)
        return self.net(x)


def build() -> Parts:
    known, held = split(*digits(), n=1200)
    model = Net()
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3),
                 DataLoader(TensorDataset(*known), 64, shuffle=True), nn.CrossEntropyLoss(),
                 valid=DataLoader(TensorDataset(*held), 256))


def error(parts: Parts) -> float: return wrong(parts.model, parts.valid)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12*len(parts.data))
    with record.on(model, optimizer=optimizer):
        for _ in range(12):
            model.train()
            for x, y in parts.data:
                loss = parts.loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                record.step(loss)
            error(parts)
    return error(parts)
