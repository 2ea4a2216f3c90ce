"""vit-pytorch: a vision transformer learns from the labels and from a convolutional teacher.

After the README of vit-pytorch, "Distillation": a `DistillWrapper` holds the frozen teacher and the student, adds a
token for what the teacher says, and returns the loss from images and labels. Error: wrong answers of the student held
back."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from vit_pytorch.distill import DistillableViT, DistillWrapper

from tests.bench.libraries._data import digits, split, wrong
from tests.bench.programs import Parts

SOURCE = "vit-pytorch: Distillation"
PACKAGES = ("vit-pytorch", "scikit-learn")


def taught(data):
    "A convolutional net that knows the digits."
    net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(),
                        nn.Flatten(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(8):
        for x, y in data:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
    return net.eval()


def call(distiller, batch): return distiller(*batch)


def build() -> Parts:
    known, held = split(*digits(), n=1300)
    data = DataLoader(TensorDataset(*known), 64, shuffle=True)
    student = DistillableViT(image_size=8, patch_size=2, channels=1, num_classes=10, dim=48, depth=2, heads=4,
                             dim_head=12, mlp_dim=96, dropout=.1, emb_dropout=.1)
    model = DistillWrapper(student=student, teacher=taught(data), temperature=3, alpha=.5, hard=False)
    params = [p for name, p in model.named_parameters() if not name.startswith("teacher")]
    optimizer = torch.optim.AdamW(params, lr=3e-3)
    return Parts(model, optimizer, data, call=call, valid=DataLoader(TensorDataset(*held), 256))


def error(parts: Parts) -> float: return wrong(parts.model.student, parts.valid)


def train(parts: Parts, record) -> float:
    model, optimizer = parts.model, parts.optimizer
    with record.on(model, optimizer=optimizer):
        for _ in range(12):
            model.student.train()
            for batch in parts.data:
                loss = call(model, batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
            error(parts)
    return error(parts)
