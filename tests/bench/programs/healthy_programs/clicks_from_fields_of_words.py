"""Clicks, of which there are few, from fields that each hold one of many words.

Habits of the source: one table for all fields, with an offset for each; a linear part, products of all pairs by squares
of sums, and a net over the joined vectors, added up; a sigmoid in the model and the cross entropy of chances; vectors
by Xavier over the whole table; dropout and batch norm in the net; words that training never saw at the test; weight
decay; training stops when the area under the curve of the validation set has not risen for two epochs.
Score: one less that area on held-back rows, by one half. Below .5; about 1 for the untrained model."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.bench.programs import Parts

SOURCE, YEAR = "rixwew/pytorch-fm examples/main.py", 2019
SIZES = 200, 80, 30, 12, 5


class Clicks(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("offsets", torch.tensor((0, *SIZES[:-1])).cumsum(0))
        self.vector, self.weight = nn.Embedding(sum(SIZES), 8), nn.Embedding(sum(SIZES), 1)
        nn.init.xavier_uniform_(self.vector.weight)
        self.bias = nn.Parameter(torch.zeros(1))
        self.net = nn.Sequential(nn.Linear(8*len(SIZES), 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(.2),
                                 nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(.2), nn.Linear(32, 1))

    def forward(self, x):
        rows = x + self.offsets
        v = self.vector(rows)
        pairs = .5*(v.sum(1)**2 - (v**2).sum(1)).sum(1)
        return torch.sigmoid(self.weight(rows).sum((1, 2)) + self.bias + pairs + self.net(v.flatten(1))[:, 0])


def rows(n: int, effects, taste, goods):
    "Users, goods and other fields with long tails; a click in one of ten or fewer."
    x = torch.stack([(size*torch.rand(n)**2).long() for size in SIZES], 1)
    score = sum(effect[word] for effect, word in zip(effects, x.T)) + 1.2*(taste[x[:, 0]]*goods[x[:, 1]]).sum(1) - 3.2
    return x, (torch.rand(n) < score.sigmoid()).float()


def area(said, y):
    "How often a click has a higher chance than another row."
    ranks = said.argsort().argsort().float() + 1
    clicks = y.sum()
    return ((ranks[y == 1].sum() - clicks*(clicks + 1)/2)/(clicks*(len(y) - clicks))).item()


def build(repaired: bool) -> Parts:
    effects = [.9*torch.randn(size) for size in SIZES]
    taste, goods = torch.randn(SIZES[0], 2), torch.randn(SIZES[1], 2)
    train, valid, test = (rows(n, effects, taste, goods) for n in (12000, 2000, 4000))
    model = Clicks()
    parts = Parts(model, torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-6),
                  DataLoader(TensorDataset(*train), 256, shuffle=True), F.binary_cross_entropy, valid=[valid])
    parts.test = test
    return parts


def train(parts: Parts, record) -> float:
    model, optimizer, best, waited, kept = parts.model, parts.optimizer, 0, 0, None
    with record.on(model, optimizer):
        for _ in range(8):
            model.train()
            for x, y in parts.data:
                loss = parts.loss(model(x), y)
                model.zero_grad()
                loss.backward()
                optimizer.step()
                record.step(loss)
            model.eval()
            x, y = parts.valid[0]
            with torch.no_grad(): reached = area(model(x), y)
            if reached > best: best, waited, kept = reached, 0, {k: v.clone() for k, v in model.state_dict().items()}
            else: waited += 1
            if waited == 2: break
    model.load_state_dict(kept)
    x, y = parts.test
    with torch.no_grad(): return 2*(1 - area(model(x), y))
