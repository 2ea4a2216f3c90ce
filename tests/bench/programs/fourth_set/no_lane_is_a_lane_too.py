"""With one kind of lane, the number that stands for "no lane" is the number of the lanes, so all targets are equal.

The report: the data has 1 as the class of a lane, and the loss fills the targets with the number of classes, which is 1
as well; the cross-entropy falls to zero. The author agrees, and writes that the fill has to be another number."""
import itertools

import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "liuruijin17/LSTR#50", 2021
AREA, CAUSE = "data and labels", "constant targets"
TRUE = set()
PLACE = ("kind",)

queries, rows, columns = 4, 8, 16


class Lanes(nn.Module):
    "A convolution, an encoder over places and a decoder with a query for each lane that there may be."
    def __init__(self, size: int):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, size, 3, padding=1), nn.ReLU(),
                                  nn.Conv2d(size, size, 3, 2, 1), nn.ReLU())
        self.place = nn.Parameter(.3*torch.randn(rows*columns//4, size))
        self.query = nn.Parameter(torch.randn(queries, size))
        self.encoder = nn.TransformerEncoderLayer(size, 4, 2*size, 0., batch_first=True)
        self.decoder = nn.TransformerDecoderLayer(size, 4, 2*size, 0., batch_first=True)
        self.kind, self.curve = nn.Linear(size, 2), nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, 2))

    def forward(self, image):
        memory = self.encoder(self.body(image).flatten(2).transpose(1, 2) + self.place)
        states = self.decoder(self.query.expand(len(image), -1, -1), memory)
        return self.kind(states), self.curve(states).sigmoid()


def roads(n: int):
    "One to three lanes that come together to the top; a lane is its place at the bottom and at the top."
    count = torch.randint(1, 4, (n,))
    bottom = (torch.rand(n, 3) + torch.arange(3))/3
    lane = torch.stack([bottom, .5 + .6*(bottom - .5) + .2*(torch.rand(n, 1) - .5)], 2)
    t = torch.linspace(1, 0, rows)
    path = lane[..., :1]*(1 - t) + lane[..., 1:]*t
    near = (-(path[..., None]*columns - torch.arange(columns) - .5)**2).exp()
    drawn = (near*(torch.arange(3) < count[:, None])[..., None, None]).sum(1)
    return (drawn + .1*torch.randn(n, rows, columns))[:, None], lane, count


def match(cost):
    "The query of each lane that makes the sum of the costs least."
    orders = torch.tensor(list(itertools.permutations(range(queries), cost.shape[1])))
    return orders[cost[orders, torch.arange(cost.shape[1])].sum(1).argmin()]


def build(repaired: bool) -> Parts:
    model, empty = Lanes(32), 0 if repaired else 1

    def call(model, batch):
        image, lane, count = batch
        score, curve = model(image)
        label, bend = torch.full(score.shape[:2], empty), 0.
        for i, (lanes, n) in enumerate(zip(lane, count.tolist())):
            cost = 5*torch.cdist(curve[i], lanes[:n], p=1) - 3*score[i].softmax(1)[:, 1:]
            chosen = match(cost.detach())
            label[i, chosen] = 1  # a lane
            bend = bend + (curve[i, chosen] - lanes[:n]).abs().sum()
        return 3*F.cross_entropy(score.transpose(1, 2), label) + 5*bend/count.sum()

    data = [roads(16) for _ in range(30)]
    return Parts(model, torch.optim.AdamW(model.parameters(), lr=1e-3), data, call=call, valid=[roads(200)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(5):
            parts.model.train()
            for batch in parts.data:
                parts.optimizer.zero_grad()
                loss = parts.call(parts.model, batch)
                loss.backward()
                parts.optimizer.step()
                record.step(loss)
    parts.model.eval()
    image, _, count = parts.valid[0]
    with torch.no_grad(): found = (parts.model(image)[0].argmax(2) == 1).sum(1)
    return (found - count).abs().float().mean().item()
