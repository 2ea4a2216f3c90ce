"""The labels of a second collection are shifted together with those of the first, so that both use the same numbers.

The report: to train a descriptor of patches on several collections, the largest label is added behind the
concatenation, to all labels at once. The maintainer confirmed that it is a bug, as patches of different points make
pairs, and adds it to the labels of the new collection only."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "DagnyT/hardnet#25", 2018
AREA, CAUSE = "data and labels", "labels do not belong to inputs"
TRUE = set()
PLACE = ()


class Descriptor(nn.Module):
    "A patch as a point on a sphere."
    def __init__(self, size: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, size), nn.BatchNorm1d(size), nn.ReLU(), nn.Linear(size, 16))

    def forward(self, patch): return F.normalize(self.layers(patch))


def patches(n: int, signal, nuisance):
    "Two patches of each of n points, which differ in light and point of view."
    point = torch.randn(n, 10).repeat(2, 1)
    patch = (point @ signal).tanh() + torch.randn(2*n, 6) @ nuisance + .1*torch.randn(2*n, 32)
    return patch, torch.arange(n).repeat(2)


def joined(labels, new, repaired: bool):
    if repaired: return torch.cat([labels, new + labels.max() + 1])
    return torch.cat([labels, new]) + labels.max() + 1


def pairs(labels, n: int):
    "Of n labels two patches each."
    chosen = labels.unique()[torch.randperm(len(labels.unique()))[:n]]
    places = [(labels == label).nonzero()[:, 0] for label in chosen]
    two = torch.stack([place[torch.randperm(len(place))[:2]] for place in places])
    return two[:, 0], two[:, 1]


def hardest_in_batch(anchor, positive):
    "The pair has to be nearer than the nearest patch of another point."
    far = (2 - 2*anchor @ positive.T + 1e-6).sqrt()
    other = far + 10*torch.eye(len(far))
    return (1 + far.diagonal() - torch.minimum(other.amin(0), other.amin(1))).clamp(min=0).mean()


def build(repaired: bool) -> Parts:
    signal, nuisance = torch.randn(10, 32), torch.randn(6, 32)
    first, second = patches(300, signal, nuisance), patches(300, signal, nuisance)
    patch, labels = torch.cat([first[0], second[0]]), joined(first[1], second[1], repaired)
    chosen = [pairs(labels, 48) for _ in range(200)]
    data = [(patch[one], patch[other]) for one, other in chosen]
    model = Descriptor(64)

    def call(model, batch): return hardest_in_batch(model(batch[0]), model(batch[1]))

    held_back = patches(200, signal, nuisance)[0]
    return Parts(model, torch.optim.SGD(model.parameters(), lr=.1, momentum=.9, weight_decay=1e-4), data, call=call,
                 valid=[(held_back[:200], held_back[200:])])


def train(parts: Parts, record) -> float:
    parts.model.train()
    with record.on(parts.model, parts.optimizer):
        for batch in parts.data:
            loss = parts.call(parts.model, batch)
            parts.optimizer.zero_grad()
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    parts.model.eval()
    one, other = parts.valid[0]
    with torch.no_grad(): found = (parts.model(one) @ parts.model(other).T).argmax(1)
    return (found != torch.arange(len(found))).float().mean().item()
