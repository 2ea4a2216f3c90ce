"""Features and labels lie in files of the same names, but each folder is listed in an order of its own.

The report: `os.listdir` promises no order, so the features of one picture may meet the label of another. The author
confirmed it and sorts both lists."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "chuanyangjin/fast-DiT#4", 2023
AREA, CAUSE = "data and labels", "labels do not belong to inputs"
TRUE = set()
PLACE = ()

steps = 20
kept = torch.cos(torch.linspace(.05, 1.5, steps))**2  # how much of the variance is signal
means = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))


class Denoiser(nn.Module):
    "The noise in the features of a picture of a class."
    def __init__(self):
        super().__init__()
        self.time, self.label = nn.Embedding(steps, 16), nn.Embedding(5, 16)
        self.net = nn.Sequential(nn.Linear(38, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, 6))

    def forward(self, x, time, label): return self.net(torch.cat([x, self.time(time), self.label(label)], 1))


def pictures(n: int):
    label = torch.randint(5, (n,))
    return means[label] + .2*torch.randn(n, 6), label


def folder(values) -> dict:
    "Files as a file system lists them: in any order."
    return {f"{i:04}.npy": values[i] for i in torch.randperm(len(values)).tolist()}


def build(repaired: bool) -> Parts:
    features, labels = map(folder, pictures(1024))
    feature_files, label_files = list(features), list(labels)
    if repaired: feature_files, label_files = sorted(feature_files), sorted(label_files)
    data = [(torch.stack([features[name] for name in feature_files[i:i + 64]]),
             torch.stack([labels[name] for name in label_files[i:i + 64]])) for i in range(0, 1024, 64)]
    model = Denoiser()

    def call(model, batch):
        x, label = batch
        time, noise = torch.randint(steps, (len(x),)), torch.randn_like(x)
        signal = kept[time, None]
        return F.mse_loss(model(signal.sqrt()*x + (1 - signal).sqrt()*noise, time, label), noise)

    return Parts(model, torch.optim.AdamW(model.parameters(), lr=3e-3), data, call=call, valid=[pictures(500)])


def make(model, label):
    "Takes the noise away step by step."
    x = torch.randn(len(label), 6)
    for i in reversed(range(steps)):
        noise = model(x, torch.full_like(label, i), label)
        clean = ((x - (1 - kept[i]).sqrt()*noise)/kept[i].sqrt()).clamp(-3, 3)
        x = clean if i == 0 else kept[i - 1].sqrt()*clean + (1 - kept[i - 1]).sqrt()*noise
    return x


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(30):
            for batch in parts.data:
                loss = parts.call(parts.model, batch)
                parts.optimizer.zero_grad()
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    x, label = parts.valid[0]
    with torch.no_grad(): made = make(parts.model, label)
    return (F.mse_loss(made, means[label])/F.mse_loss(x.roll(1, 0), means[label])).item()
