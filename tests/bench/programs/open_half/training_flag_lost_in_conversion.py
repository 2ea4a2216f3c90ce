"""A graph network is converted for several kinds of nodes, and the flag of its dropout is written down as it was then.

The report: after the conversion the dropout works in evaluation too, because `self.training` was read once, when the
model was traced. A maintainer reported it and confirmed it with a small graph; it was mended."""
import torch
from torch import nn
from torch.nn import functional as F

from tests.bench.programs import Parts

SOURCE, YEAR = "pyg-team/pytorch_geometric#7745", 2023
AREA, CAUSE = "modes", "random in eval"
TRUE = set()
PLACE = ()


class Convolution(nn.Module):
    "A node's own features and the mean of those of its neighbours of another kind."
    def __init__(self, before: int, after: int):
        super().__init__()
        self.own, self.others = nn.Linear(before, after), nn.Linear(before, after)

    def forward(self, x, neighbours, edges): return self.own(x) + self.others(edges @ neighbours)


class Converted(nn.Module):
    "Two kinds of nodes with the same layers each; the values that the conversion found go into the calls."
    def __init__(self, size: int, repaired: bool):
        super().__init__()
        kinds = "paper", "author"
        self.first = nn.ModuleDict({kind: Convolution(6, size) for kind in kinds})
        self.second = nn.ModuleDict({kind: Convolution(size, size) for kind in kinds})
        self.last = nn.Linear(size, 1)
        self.found = {} if repaired else {"training": self.training}

    def drop(self, x): return F.dropout(x, .6, **{"training": self.training, **self.found})

    def forward(self, paper, author, edges):
        back = edges.T/edges.T.sum(1, keepdim=True).clamp(min=1)
        edges = edges/edges.sum(1, keepdim=True).clamp(min=1)
        for layer in self.first, self.second:
            paper, author = (self.drop(layer["paper"](paper, author, edges).relu()),
                             self.drop(layer["author"](author, paper, back).relu()))
        return self.last(paper)


def graph(papers: int, authors: int):
    "Papers with their authors; the target of a paper depends on its features and on those of its authors."
    paper, author = torch.randn(papers, 6), torch.randn(authors, 6)
    edges = (torch.rand(papers, authors) < 3/authors).float()
    mean = edges @ author/edges.sum(1, keepdim=True).clamp(min=1)
    return paper, author, edges, paper[:, :1] + 1.5*mean[:, 1:2] + .2*torch.randn(papers, 1)


def build(repaired: bool) -> Parts:
    model = Converted(48, repaired)
    held_back = torch.arange(600) >= 400
    data = [(*graph(600, 200), ~held_back)]

    def call(model, batch):
        *inputs, target, mask = batch
        return F.mse_loss(model(*inputs)[mask], target[mask])

    *inputs, target, mask = data[0]
    return Parts(model, torch.optim.Adam(model.parameters(), lr=5e-3), data, call=call,
                 valid=[(*inputs, target, held_back)])


def train(parts: Parts, record) -> float:
    with record.on(parts.model, parts.optimizer):
        for _ in range(300):
            parts.model.train()
            parts.optimizer.zero_grad()
            loss = parts.call(parts.model, parts.data[0])
            loss.backward()
            parts.optimizer.step()
            record.step(loss)
    parts.model.eval()
    target, mask = parts.valid[0][-2:]
    with torch.no_grad(): return (parts.call(parts.model, parts.valid[0])/target[mask].var()).item()
