"""Samples are stored class by class, and the second half of them, unshuffled, is what the search validates on.

The report: in a search for an architecture the training loss falls, while loss and accuracy of the other half stay
where they are. A reader who had it with data of his own found that he had not shuffled before the split; with shuffled
indices it was solved."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "khanrc/pt.darts#24", 2019
AREA, CAUSE = "data and labels", "data not shuffled"
TRUE = {"validation differs from training"}
PLACE = ()

kinds = 8


class Mixed(nn.Module):
    "A weighted sum of three operations."
    def __init__(self, size: int):
        super().__init__()
        self.operations = nn.ModuleList([nn.Identity(), nn.Conv2d(size, size, 1), nn.Conv2d(size, size, 3, padding=1)])
        self.norm = nn.BatchNorm2d(size)

    def forward(self, x, weights):
        return self.norm(sum(w*operation(x) for w, operation in zip(weights, self.operations))).relu()


class Supernet(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, size, 3, padding=1), nn.BatchNorm2d(size), nn.ReLU())
        self.cells = nn.ModuleList([Mixed(size), Mixed(size)])
        self.alphas = nn.Parameter(1e-3*torch.randn(2, 3))
        self.last = nn.Linear(size*16, kinds)

    def forward(self, x):
        x = F.max_pool2d(self.stem(x), 2)
        for cell, weights in zip(self.cells, self.alphas.softmax(1)): x = cell(x, weights)
        return self.last(x.flatten(1))


def pictures(n: int, looks):
    "Textures in noise, ordered by their class as folders would be."
    kind = torch.arange(kinds).repeat_interleave(n//kinds)
    return .6*looks[kind] + torch.randn(n, 1, 8, 8), kind


def build(repaired: bool) -> Parts:
    looks = torch.randn(kinds, 1, 8, 8)
    known, model = TensorDataset(*pictures(1024, looks)), Supernet(12)
    order = torch.randperm(1024) if repaired else torch.arange(1024)
    halves = [DataLoader(known, 32, sampler=SubsetRandomSampler(half.tolist())) for half in order.split(512)]
    weights = [p for name, p in model.named_parameters() if name != "alphas"]
    optimizers = [torch.optim.Adam([model.alphas], lr=3e-3, betas=(.5, .999), weight_decay=1e-3),
                  torch.optim.SGD(weights, lr=.03, momentum=.9, weight_decay=3e-4)]
    return Parts(model, optimizers, halves[0], F.cross_entropy, valid=halves[1])


def train(parts: Parts, record) -> float:
    model, (of_alphas, of_weights) = parts.model, parts.optimizer
    with record.on(model, parts.optimizer):
        for _ in range(6):
            model.train()
            for (x, kind), (other, its_kind) in zip(parts.data, parts.valid):
                of_alphas.zero_grad()
                parts.loss(model(other), its_kind).backward()
                of_alphas.step()
                of_weights.zero_grad()
                loss = parts.loss(model(x), kind)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 5.)
                of_weights.step()
                record.step(loss)
    model.eval()
    with torch.no_grad():
        wrong = [(model(x).argmax(1) != kind).float().mean() for x, kind in parts.valid]
    return torch.stack(wrong).mean().item()
